// The style of the run page.
#pragma once

namespace strata::observe {

inline constexpr const char* kPageStyle = R"css(
:root{--page:#f4f6f9;--line:#dfe4ea;--good:#0d8a63;--bad:#cf3f3f;--warn:#b7791f}
@media(prefers-color-scheme:dark){:root{--page:#0d1117;--line:#2a323d;--good:#4cc38a;--bad:#f2777a;--warn:#e3b341}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}
main{max-width:1240px;margin:0 auto;padding:24px 20px 48px}
header{display:flex;flex-wrap:wrap;align-items:center;gap:4px 14px}
h1{font-size:24px;margin:0;overflow-wrap:anywhere}
h2{font-size:14px;margin:0 0 12px}
.badge{padding:2px 12px;border-radius:99px;font-size:13px;font-weight:600;color:var(--surface);background:var(--c0)}
.finished{background:var(--good)}.failed{background:var(--bad)}.interrupted{background:var(--warn)}
.muted{color:var(--muted)}.small{font-size:13px}
.why{margin:12px 0 0;padding:10px 14px;border-left:4px solid var(--bad);background:var(--surface);white-space:pre-wrap;
overflow-wrap:anywhere}
.bar{height:8px;border-radius:8px;background:var(--line);margin:16px 0;overflow:hidden}
.bar i{display:block;height:100%;background:var(--c0);border-radius:8px}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(132px,1fr));gap:12px;margin-bottom:16px}
.card{background:var(--surface);border:1px solid var(--line);border-radius:10px;padding:14px 16px;min-width:0}
.tile{padding:10px 14px}.tile b{display:block;font-size:19px;font-variant-numeric:tabular-nums;white-space:nowrap}
.grid{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:16px}.wide{grid-column:1/-1}
@media(max-width:800px){.grid{grid-template-columns:minmax(0,1fr)}main{padding:16px 12px 40px}}
.chart{display:block;width:100%;height:auto}.plot{padding:8px 6px 4px;position:relative}
.on-narrow{display:none}@media(max-width:640px){.on-wide{display:none}.on-narrow{display:block}}
.tabs{padding:8px 6px 4px}.tabs input{position:absolute;opacity:0;pointer-events:none}
.tabs label{display:inline-block;padding:2px 12px;margin:4px 0 4px 8px;border-radius:99px;cursor:pointer;font-size:13px;
color:var(--muted);border:1px solid var(--line)}
.tabs input:checked+label{color:var(--surface);background:var(--c0);border-color:var(--c0)}
.tabs input:focus-visible+label{outline:2px solid var(--c0);outline-offset:2px}
.tabs .view{display:none}#t1:checked~.v1,#t2:checked~.v2{display:block}
.stack{display:flex;height:26px;border-radius:6px;overflow:hidden;background:var(--line)}
.stack i{display:block;min-width:1px}
.keys{display:grid;grid-template-columns:repeat(auto-fill,minmax(250px,1fr));gap:4px 18px;margin-top:12px;font-size:13px}
.keys span{display:flex;gap:8px;align-items:center}.keys em{margin-left:auto;font-style:normal;color:var(--muted);
font-variant-numeric:tabular-nums;white-space:nowrap}
.swatch{flex:none;width:11px;height:11px;border-radius:3px}
.row{display:grid;grid-template-columns:minmax(80px,150px) 1fr minmax(128px,auto);gap:12px;align-items:center;font-size:13px;
margin:6px 0}.row em{font-style:normal;color:var(--muted);text-align:right;font-variant-numeric:tabular-nums}
.meter{position:relative;height:14px;border-radius:4px}.meter i,.meter u{position:absolute;left:0;top:0;height:100%;
border-radius:4px}.meter u{border:1px solid var(--c0);background:var(--line)}.meter i{background:var(--c0)}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:13px}
td,th{text-align:left;padding:5px 14px 5px 0;vertical-align:top;border-bottom:1px solid var(--line)}
tr:last-child>*{border-bottom:0}th{color:var(--muted);font-weight:500}td.time{white-space:nowrap}
td.text{overflow-wrap:anywhere;min-width:180px}
pre{margin:0;white-space:pre-wrap;overflow-wrap:anywhere;font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;
max-height:340px;overflow:auto}
.tip{position:absolute;pointer-events:none;background:var(--ink);color:var(--surface);padding:3px 9px;border-radius:6px;
font-size:12px;white-space:nowrap;display:none;font-variant-numeric:tabular-nums}
.ruler{stroke:var(--muted);stroke-dasharray:3 3}.brush{fill:var(--c0);opacity:.15}
.live{position:relative;touch-action:pan-y;user-select:none}.js .nojs{display:none}
.controls{display:flex;flex-wrap:wrap;gap:4px 16px;align-items:center;padding:6px 10px 0;font-size:13px}
.controls label{display:inline-flex;gap:4px;align-items:center;cursor:pointer}.controls input{margin:0}
.tile em{font-style:normal;color:var(--muted);font-size:12px}
details{margin:10px 0 0;font-size:13px}summary{cursor:pointer;color:var(--muted)}
.prompt{color:var(--muted);font-size:13px;margin:10px 0 4px}
)css";

}  // namespace strata::observe
