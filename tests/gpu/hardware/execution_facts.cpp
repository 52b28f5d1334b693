// Measures launches, clocks, arithmetic and concurrent work.
#include <fmt/core.h>

#include <numeric>
#include <random>

#include "hardware/facts.h"

namespace strata::gpu_tests::facts {

Json launches(const Scale& scale) {
  const Kernels kernels;
  const Stream stream, other;
  const Memory out(4096);
  struct {
    char all[256] = {};
  } params;
  const auto back_to_back = [&](const std::function<void()>& one, uint32_t calls) {
    const uint32_t count = scale.loops(calls);
    one();
    stream.wait();
    std::vector<double> enqueue, whole;
    for (int n = 0; n < 7; ++n) {
      double queued = 0;
      whole.push_back(host_us([&] {
                        queued = host_us([&] {
                          for (uint32_t k = 0; k < count; ++k) one();
                        });
                        stream.wait();
                      }) /
                      count);
      enqueue.push_back(queued / count);
    }
    return Json{{"host_us", median(enqueue)}, {"end_to_end_us", median(whole)}};
  };
  const auto one_by_one = [&](const std::function<void()>& one) {
    std::vector<double> times;
    for (int n = 0; n < 300; ++n) times.push_back(host_us(one));
    return median(times);
  };
  Json json;
  json["method"] =
      "host clock; 'back to back': calls without a wait, per call, while they are enqueued and until all "
      "have run";
  json["empty_back_to_back_500"] = back_to_back([&] { launch(kernels.nothing, 1, 32, stream); }, 500);
  json["empty_132_blocks_back_to_back_500"] =
      back_to_back([&] { launch(kernels.nothing, 132, 1024, stream); }, 500);
  json["256_bytes_of_parameters_back_to_back_500"] =
      back_to_back([&] { launch(kernels.nothing256, 1, 32, stream, params); }, 500);
  json["empty_back_to_back_5000"] = back_to_back([&] { launch(kernels.nothing, 1, 32, stream); }, 5000);
  json["empty_and_wait_us"] = one_by_one([&] {
    launch(kernels.nothing, 1, 32, stream);
    stream.wait();
  });
  json["wait_of_an_idle_stream_us"] = one_by_one([&] { stream.wait(); });
  const Event plain(cuda::kEventWithoutTiming), timed;
  json["event_record_back_to_back_500"] = back_to_back([&] { plain.record(stream); }, 500);
  json["timed_event_record_back_to_back_500"] = back_to_back([&] { timed.record(stream); }, 500);
  json["kernel_and_event_back_to_back_500"] = back_to_back(
      [&] {
        launch(kernels.nothing, 1, 32, stream);
        plain.record(stream);
      },
      500);
  // Alternates kernels on two streams, each after the other's.
  const Event first(cuda::kEventWithoutTiming), second(cuda::kEventWithoutTiming);
  json["ping_pong_of_two_streams_200"] = back_to_back(
      [&] {
        launch(kernels.nothing, 1, 32, stream);
        first.record(stream);
        check(driver().wait_event(other, first, 0), "cuStreamWaitEvent");
        launch(kernels.nothing, 1, 32, other);
        second.record(other);
        check(driver().wait_event(stream, second, 0), "cuStreamWaitEvent");
      },
      200);
  json["event_record_and_wait_of_host_us"] = one_by_one([&] {
    launch(kernels.nothing, 1, 32, stream);
    plain.record(stream);
    check(driver().synchronize_event(plain), "cuEventSynchronize");
  });
  json["create_and_destroy_event_us"] = one_by_one([] { const Event event; });
  json["create_and_destroy_stream_us"] = one_by_one([] { const Stream one; });
  json["fill_4_bytes_back_to_back_500"] =
      back_to_back([&] { check(driver().fill_async(out, 0, 4, stream), "cuMemsetD8Async"); }, 500);
  json["copy_4_bytes_on_device_back_to_back_500"] =
      back_to_back([&] { check(driver().copy_async(out, out + 64, 4, stream), "cuMemcpyDtoDAsync"); }, 500);
  return json;
}

Json clocks_and_latency(const Scale& scale) {
  const Kernels kernels;
  const Stream stream;
  const Memory out(4096);
  Json json;
  uint64_t measured[2] = {};
  for (int n = 0; n < 3; ++n) launch(kernels.spin, 1, 1, stream, Pointer{out}, 5 * scale.clocks);
  const auto fetch = [&] {
    check(driver().copy_to_host_async(measured, out, sizeof measured, stream), "cuMemcpyDtoHAsync");
    stream.wait();
  };
  fetch();
  json["method"] =
      "spin: clock64 against globaltimer in one thread; latency: a chain of pointers in random order, past "
      "L1, after "
      "a walk over all of it (512 MiB: over a fifth)";
  json["clock_mhz_under_light_load"] =
      static_cast<double>(measured[0]) * 1000 / static_cast<double>(std::max<uint64_t>(measured[1], 1));
  json["load_latency_clocks"] = Json::array();
  for (const size_t bytes : {scale.mib, 16 * scale.mib, 32 * scale.mib, 48 * scale.mib, 512 * scale.mib}) {
    const Memory chain(bytes);
    constexpr size_t kLine = 256;
    std::vector<uint32_t> order(bytes / kLine);
    std::iota(order.begin(), order.end(), 0u);
    std::mt19937 random(1);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<uint64_t> memory(bytes / 8);
    for (size_t n = 0; n < order.size(); ++n)
      memory[order[n] * kLine / 8] = Pointer{chain} + order[(n + 1) % order.size()] * kLine;
    check(driver().copy_to_device_async(chain, memory.data(), bytes, stream), "cuMemcpyHtoDAsync");
    // Walks through all of it, or more than L2 holds; then continues from there.
    const auto walk = [&](Pointer first, uint32_t steps) {
      launch(kernels.chase, 1, 1, stream, Pointer{out}, first, steps);
      fetch();
    };
    const auto steps = scale.loops(20000);
    walk(Pointer{chain} + order[0] * kLine, static_cast<uint32_t>(std::min<size_t>(order.size(), 400000)));
    walk(measured[1], steps);
    json["load_latency_clocks"].push_back(
        {{"bytes", bytes}, {"clocks", static_cast<double>(measured[0]) / steps}});
  }
  return json;
}

Json arithmetic(const Scale& scale) {
  const Stream stream;
  const Memory out(4096);
  const auto processors = static_cast<unsigned>(gpu_tests::card().attribute(16));
  Json json;
  json["method"] =
      "a loop of eight independent instructions in 16 warps a multiprocessor, events, median of 3; mma on "
      "values that differ by lane";
  const auto measure = [&](const char* name, const std::string& one, double operations, uint32_t rounds) {
    std::string instructions;
    for (int n = 0; n < 8; ++n) {
      instructions += fmt::format(fmt::runtime(one), n * 4, n * 4 + 1, n * 4 + 2, n * 4 + 3);
      instructions += '\n';
    }
    const cuda::Module module = load(kFactHead + loop_kernel("loop", instructions));
    const cuda::Function kernel = function(module, "loop");
    const double us = device_us(
        stream, [&](int) { launch(kernel, processors * 2, 256, stream, Pointer{out}, scale.loops(rounds)); },
        30000, 3);
    const double warps = processors * 2.0 * 8, done = warps * 8 * scale.loops(rounds);
    json[name] = {{"tera_operations_s", done * operations / us / 1e6},
                  {"warp_instructions_s_per_multiprocessor", done / us * 1e6 / processors}};
    check(driver().unload_module(module), "cuModuleUnload");
  };
  const std::string quad = "{{%f{0}, %f{1}, %f{2}, %f{3}}}";
  measure("mma_m16n8k16_bf16",
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 " + quad +
              ", {{%r1, %r2, %r3, %r4}}, {{%r5, %r6}}, " + quad + ";",
          2 * 16 * 8 * 16, 20000);
  measure("mma_m16n8k16_f16",
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 " + quad +
              ", {{%r1, %r2, %r3, %r4}}, {{%r5, %r6}}, " + quad + ";",
          2 * 16 * 8 * 16, 20000);
  measure("mma_m16n8k8_tf32",
          "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 " + quad +
              ", {{%r1, %r2, %r3, %r4}}, {{%r5, %r6}}, " + quad + ";",
          2 * 16 * 8 * 8, 20000);
  measure("fma_f32", "fma.rn.f32 %f{0}, %f{0}, %f32, %f33;", 64, 50000);
  measure("ex2_f32", "ex2.approx.f32 %f{0}, %f{0};", 32, 20000);
  return json;
}

Json concurrency(const Scale& scale) {
  const Kernels kernels;
  const Stream first, second, third;
  const Memory from(512 * scale.mib), to(512 * scale.mib), staged(256 * scale.mib), out(4096);
  const Pinned pinned(256 * scale.mib), pinned2(256 * scale.mib);
  const auto spin = [&](const Stream& stream) {
    launch(kernels.spin, 1, 1, stream, Pointer{out} + (&stream == &first ? 0 : 64), scale.clocks);
  };
  const auto copy_kernels = [&](const Stream& stream) {
    for (int n = 0; n < 12; ++n)
      launch(kernels.copy16, 1056, 256, stream, Pointer{to}, Pointer{from}, 512 * scale.mib / 16);
  };
  const auto in = [&](const Stream& stream) {
    check(driver().copy_to_device_async(staged, pinned, 256 * scale.mib, stream), "cuMemcpyHtoDAsync");
  };
  const auto out_copy = [&](const Stream& stream) {
    check(driver().copy_to_host_async(pinned2, from, 256 * scale.mib, stream), "cuMemcpyDtoHAsync");
  };
  const auto time = [&](const std::vector<std::function<void()>>& work) {
    std::vector<double> times;
    for (int n = 0; n < 3; ++n) {
      times.push_back(host_us([&] {
        for (const auto& one : work) one();
        first.wait();
        second.wait();
        third.wait();
      }));
    }
    return median(times);
  };
  Json json;
  json["method"] =
      "host clock of the work on separate streams and a wait for all, median of 3. spin: one thread for 10^7 "
      "clocks; memory kernels: 12 "
      "copies of 512 MiB; copies: 256 MiB of pinned memory";
  json["spin_us"] = time({[&] { spin(first); }});
  json["two_spins_us"] = time({[&] { spin(first); }, [&] { spin(second); }});
  json["memory_kernels_us"] = time({[&] { copy_kernels(first); }});
  json["copy_in_us"] = time({[&] { in(second); }});
  json["copy_out_us"] = time({[&] { out_copy(third); }});
  json["spin_and_copy_in_us"] = time({[&] { spin(first); }, [&] { in(second); }});
  json["memory_kernels_and_copy_in_us"] = time({[&] { copy_kernels(first); }, [&] { in(second); }});
  json["memory_kernels_and_copy_out_us"] = time({[&] { copy_kernels(first); }, [&] { out_copy(third); }});
  json["copy_in_and_copy_out_us"] = time({[&] { in(second); }, [&] { out_copy(third); }});
  json["all_three_us"] = time({[&] { copy_kernels(first); }, [&] { in(second); }, [&] { out_copy(third); }});
  // Times the memory kernels themselves while a copy runs.
  const Event begin, end;
  in(second);
  begin.record(first);
  copy_kernels(first);
  end.record(first);
  first.wait();
  second.wait();
  float milliseconds = 0;
  check(driver().elapsed(&milliseconds, begin, end), "cuEventElapsedTime");
  json["memory_kernels_during_copy_in_us"] = milliseconds * 1000;
  return json;
}

}  // namespace strata::gpu_tests::facts
