// The script of the run page: redraws its charts from their data, with a choice of axis, smoothing, scale and
// zoom. Without it the page shows the same charts as static drawings.
#pragma once

namespace strata::observe {

inline constexpr const char* kPageScript = R"js(
(() => {
  const key = 'strata:' + location.pathname;
  const state = {x: 'step', log: false, all: false, smooth: 22, zoom: null, y: 0};
  try { Object.assign(state, JSON.parse(sessionStorage.getItem(key) || '{}')); } catch (error) { /* local files */ }
  const save = () => {
    state.y = scrollY;
    try { sessionStorage.setItem(key, JSON.stringify(state)); } catch (error) { /* may be closed to them */ }
  };
  document.documentElement.classList.add('js');

  const units = [[1e12, 'T'], [1e9, 'B'], [1e6, 'M'], [1e3, 'k']];
  const short = v => {
    const unit = units.find(u => Math.abs(v) >= u[0] * (u[0] === 1e3 ? 10 : 1));
    return unit ? +(v / unit[0]).toPrecision(4) + unit[1] : v === 0 ? '0' : String(+v.toPrecision(4));
  };
  const clock = s => {
    const t = Math.max(0, Math.round(s)), two = n => String(n).padStart(2, '0');
    return Math.floor(t / 3600) + ':' + two(Math.floor(t / 60) % 60) + ':' + two(t % 60);
  };
  const shownX = {step: v => short(v), tokens: v => short(v), time: clock};
  const withUnit = (v, unit) => short(v) + (unit === '%' ? ' %' : unit ? ' ' + unit : '');

  // Round steps: 1, 2 or 5 times a power of ten; for times also 15 and 30 s, min, h.
  const stepFor = (rough, time) => {
    if (time) {
      const known = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
      const found = known.find(s => s >= rough);
      if (found) return found;
    }
    const power = 10 ** Math.floor(Math.log10(rough)), lead = rough / power;
    return power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
  };
  // As nice_ticks (chart_data.cpp): integer multiples, because adding 1 to a large number may not change it.
  const ticks = (low, high, about, time) => {
    const rough = (high - low) / about;
    if (!(rough > 0 && rough < Infinity)) return [low];
    const step = stepFor(rough, time), first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
    if (!Number.isSafeInteger(first) || !Number.isSafeInteger(last)) return [low];
    const all = Array.from({length: Math.max(0, last - first + 1)}, (_, i) => (first + i) * step);
    const out = all.filter((tick, i) => i === 0 || tick > all[i - 1]);
    return out.length ? out : [low];
  };
  const logTicks = (low, high, about) => {
    if (!(low > 0 && high < Infinity)) return [];
    const first = Math.floor(Math.log10(low)), last = Math.floor(Math.log10(high));
    const parts = Math.log10(high / low) * 3 > about * 1.3 ? [1] : [1, 2, 5];
    const all = Array.from({length: Math.max(0, last - first + 1)}, (_, i) => parts.map(m => m * 10 ** (first + i))).flat();
    const out = all.filter(tick => tick >= low && tick <= high);
    return out.length > 1 ? out : [low, high];
  };

  // Mean over a window around each point, truncated at both ends.
  const smoothed = (ys, window) => {
    const sums = [0], reach = Math.floor(window / 2);
    for (const y of ys) sums.push(sums[sums.length - 1] + y);
    return ys.map((_, i) => {
      const from = Math.max(0, i - reach), to = Math.min(ys.length, i + reach + 1);
      return (sums[to] - sums[from]) / (to - from);
    });
  };
  // Medians over a few neighbours, to ignore single spikes.
  const calm = ys => {
    const reach = Math.max(2, Math.min(25, Math.floor(ys.length / 100)));
    if (ys.length < 4 * reach) return ys;
    return ys.map((_, i) => {
      const part = ys.slice(Math.max(0, i - reach), i + reach + 1).sort((a, b) => a - b);
      return part[Math.floor(part.length / 2)];
    });
  };

  // The position of v between low (0) and high (1), whose difference may overflow.
  const part = (v, low, high) => Number.isFinite(high - low) ? (v - low) / (high - low)
    : (v / 2 - low / 2) / (high / 2 - low / 2);

  const charts = [...document.querySelectorAll('.live')].map(host => {
    const data = JSON.parse(host.firstElementChild.textContent);
    host.textContent = '';
    const view = document.createElement('div'), tip = document.createElement('div');
    tip.className = 'tip';
    host.append(view, tip);
    return {host, view, tip, data, frame: null};
  });

  const extent = values => values.reduce((r, v) => [Math.min(r[0], v), Math.max(r[1], v)], [Infinity, -Infinity]);

  const draw = chart => {
    const {data, host, view} = chart, width = Math.max(280, host.clientWidth), height = data.height;
    const left = 56, right = width - 14, top = 40, bottom = height - 34;
    const fits = v => Number.isFinite(v) && (!state.log || v > 0);
    const lines = data.lines.map(line => {
      const points = line.y.map((y, i) => ({x: line[state.x][i], y, i})).filter(p => Number.isFinite(p.x) && fits(p.y) &&
        (!state.zoom || (p.x >= state.zoom[0] && p.x <= state.zoom[1])));
      const ys = points.map(p => p.y), window = Math.round(ys.length * (state.smooth / 100) ** 2 / 2);
      return {line, points, ys, smooth: line.look === 'noisy' && window > 1 && ys.length > 10 ? smoothed(ys, window) : null};
    }).filter(l => l.points.length);
    chart.frame = null;
    if (!lines.length) { view.innerHTML = `<p class="muted small">${data.title}: nothing to draw here</p>`; return; }
    let [x0, x1] = state.zoom || extent(lines.flatMap(l => extent(l.points.map(p => p.x))));
    if (x0 === x1) x1 = x0 + Math.max(1, Math.abs(x0) * 1e-9);
    let [y0, y1] = extent(lines.flatMap(l => extent(state.all || l.line.look === 'dots' ? l.ys : calm(l.ys))));
    const beyond = extent(lines.flatMap(l => l.ys));
    if (data.zero && !state.log) y0 = Math.min(0, y0);
    const up = state.log ? Math.log10 : v => v;
    const margin = (up(y1) - up(y0)) * 0.05 || Math.abs(up(y1)) * 0.05 || 1e-9;
    const most = Number.MAX_VALUE, high = Math.min(most, up(y1) + margin);
    const low = data.zero && !state.log && y0 === 0 ? 0 : Math.max(-most, up(y0) - margin);
    const ax = x => left + part(x, x0, x1) * (right - left);
    const ay = y => bottom - part(up(y), low, high) * (bottom - top);
    const down = v => state.log ? 10 ** v : v;
    let out = `<svg class="chart" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img"
      aria-label="${data.title}"><text class="title" x="16" y="22">${data.title}</text>`;
    const about = Math.max(2, (bottom - top) / 40);
    const ys = state.log ? logTicks(down(low), down(high), about) : ticks(low, high, about, false);
    for (const y of ys) out += `<path class="grid" d="M${left} ${ay(y)}H${right}"/><text x="${left - 8}" y="${ay(y) + 4}"
      text-anchor="end">${short(y)}</text>`;
    for (const x of ticks(x0, x1, Math.max(2, (right - left) / 90), state.x === 'time')) {
      if (ax(x) > right - 60) continue;
      out += `<text x="${ax(x)}" y="${bottom + 20}" text-anchor="middle">${shownX[state.x](x)}</text>`;
    }
    out += `<text x="${right}" y="${bottom + 20}" text-anchor="end">${state.x}</text>`;
    let legend = right;
    for (const l of [...lines].reverse()) {
      if (!l.line.label) continue;
      legend -= 6.6 * l.line.label.length;
      out += `<text x="${legend}" y="22">${l.line.label}</text><path class="line" style="stroke:var(--c${l.line.color})"
        d="M${legend - 22} 18h16"/>`;
      legend -= 36;
    }
    const path = (points, value) => points.map((p, i) => (i ? 'L' : 'M') + ax(p.x).toFixed(1) + ' ' +
      Math.max(-1e4, Math.min(1e4, ay(value(p, i)))).toFixed(1)).join('') + (points.length === 1 ? 'h0' : '');
    out += `<svg x="${left - 4}" y="${top - 4}" width="${right - left + 8}" height="${bottom - top + 8}"
      viewBox="${left - 4} ${top - 4} ${right - left + 8} ${bottom - top + 8}">`;
    for (const l of lines) {
      const color = `style="stroke:var(--c${l.line.color})"`;
      const thin = l.smooth || l.line.look === 'dots';
      out += `<path class="${thin ? 'faint' : 'line'}" ${color} d="${path(l.points, p => p.y)}"/>`;
      if (l.smooth) out += `<path class="line" ${color} d="${path(l.points, (p, i) => l.smooth[i])}"/>`;
      if (l.line.look === 'dots') for (const p of l.points) out +=
        `<circle class="dot" style="fill:var(--c${l.line.color})" cx="${ax(p.x)}" cy="${ay(p.y)}" r="3.5"/>`;
    }
    out += '</svg>';
    if (beyond[1] > down(high)) out += `<text x="${right}" y="${top + 10}" text-anchor="end">&#8593; up to ${short(beyond[1])}</text>`;
    view.innerHTML = out + '<path class="ruler"/><rect class="brush" visibility="hidden"/></svg>';
    chart.frame = {left, right, top, bottom, x0, x1, lines, ax};
  };

  // The point nearest to x.
  const nearest = (points, x) => {
    let from = 0, to = points.length - 1;
    while (to - from > 1) { const middle = (from + to) >> 1; if (points[middle].x < x) from = middle; else to = middle; }
    return Math.abs(points[from].x - x) <= Math.abs(points[to].x - x) ? points[from] : points[to];
  };

  const redraw = () => { charts.forEach(draw); reset.hidden = !state.zoom; };

  for (const chart of charts) {
    let begun = null;
    const place = event => {
      const f = chart.frame, box = chart.view.getBoundingClientRect();
      const px = Math.max(f.left, Math.min(f.right, event.clientX - box.left));
      return {px, x: f.x0 + (px - f.left) / (f.right - f.left) * (f.x1 - f.x0)};
    };
    const hide = () => {
      chart.tip.style.display = 'none';
      const ruler = chart.view.querySelector('.ruler');
      if (ruler) ruler.setAttribute('d', '');
    };
    chart.view.addEventListener('pointerleave', hide);
    chart.view.addEventListener('pointerdown', event => { if (chart.frame) begun = place(event); });
    chart.view.addEventListener('dblclick', () => { state.zoom = null; redraw(); });
    addEventListener('pointerup', event => {
      const from = begun;
      begun = null;
      if (!from || !chart.frame) return;
      const to = place(event);
      if (Math.abs(to.px - from.px) > 8) { state.zoom = [Math.min(from.x, to.x), Math.max(from.x, to.x)]; redraw(); }
    });
    chart.view.addEventListener('pointermove', event => {
      const f = chart.frame;
      if (!f) return;
      const {px, x} = place(event);
      const brush = chart.view.querySelector('.brush');
      brush.setAttribute('visibility', begun ? 'visible' : 'hidden');
      if (begun) {
        brush.setAttribute('x', Math.min(px, begun.px));
        brush.setAttribute('width', Math.abs(px - begun.px));
        brush.setAttribute('y', f.top);
        brush.setAttribute('height', f.bottom - f.top);
      }
      const main = f.lines[0], at = nearest(main.points, x), step = main.line.step[at.i];
      const parts = f.lines.map(l => {
        const p = nearest(l.points, at.x), own = l.line.step[p.i];
        return (l.line.label ? l.line.label + ' ' : '') + withUnit(p.y, chart.data.unit) + (own === step ? '' : ` (step ${own})`);
      });
      const tokens = main.line.tokens[at.i], time = main.line.time[at.i];
      chart.tip.textContent = `step ${step.toLocaleString('en')}` + (tokens ? `, ${short(tokens)} tokens` : '') +
        (Number.isFinite(time) ? `, ${clock(time)}` : '') + ': ' + parts.join(', ');
      chart.view.querySelector('.ruler').setAttribute('d', `M${f.ax(at.x)} ${f.top}V${f.bottom}`);
      chart.tip.style.display = 'block';
      const box = chart.host.getBoundingClientRect();
      chart.tip.style.left = Math.max(4, Math.min(event.clientX - box.left + 12, box.width - chart.tip.offsetWidth - 6)) + 'px';
      chart.tip.style.top = event.clientY - box.top + 14 + 'px';
    });
  }

  const controls = document.querySelector('.controls');
  const reset = Object.assign(document.createElement('button'), {textContent: 'whole run', hidden: true});
  if (controls) {
    const add = (text, input) => {
      const label = document.createElement('label');
      label.append(input, ' ' + text);
      controls.append(label);
      return input;
    };
    for (const x of ['step', 'tokens', 'time']) {
      const input = add('by ' + x, Object.assign(document.createElement('input'), {type: 'radio', name: 'x', checked: state.x === x}));
      input.addEventListener('change', () => { state.x = x; state.zoom = null; redraw(); });
    }
    for (const [name, text] of [['log', 'log scale'], ['all', 'all values']]) {
      const input = add(text, Object.assign(document.createElement('input'), {type: 'checkbox', checked: state[name]}));
      input.addEventListener('change', () => { state[name] = input.checked; redraw(); });
    }
    const slider = add('smoothing', Object.assign(document.createElement('input'), {type: 'range', min: 0, max: 100}));
    slider.value = state.smooth;
    slider.addEventListener('input', () => { state.smooth = +slider.value; redraw(); });
    reset.addEventListener('click', () => { state.zoom = null; redraw(); });
    controls.append(reset, Object.assign(document.createElement('span'), {className: 'muted', textContent: 'drag over a chart to zoom'}));
  }
  redraw();
  addEventListener('resize', redraw);
  addEventListener('pagehide', save);
  scrollTo(0, state.y);
})();
)js";

}  // namespace strata::observe
