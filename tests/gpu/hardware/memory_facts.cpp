// Measures copies and allocation.

#include "hardware/facts.h"

namespace strata::gpu_tests::facts {

Json device_copies(const Scale& scale) {
  const Kernels kernels;
  const Stream stream;
  const Memory from(scale.gib), to(scale.gib);
  check(driver().fill_async(from, 1, scale.gib, stream), "cuMemsetD8Async");
  check(driver().fill_async(to, 2, scale.gib, stream), "cuMemsetD8Async");
  const auto blocks = static_cast<unsigned>(gpu_tests::card().attribute(16) * 8);
  Json json;
  json["method"] =
      "events around repeated copies of one buffer pair, median of 5; GB/s counts bytes read and written "
      "(fill: written); "
      "'rotated' walks through 1 GiB so that small sizes come from memory, not L2";
  json["sizes"] = Json::array();
  for (size_t bytes = 4 * kKiB; bytes <= scale.gib; bytes *= 4) {
    const uint64_t places = scale.gib / bytes, vectors = bytes / 16;
    const auto grid = static_cast<unsigned>(std::min<uint64_t>(blocks, (vectors + 255) / 256));
    const double copy = device_us(
        stream, [&](int) { check(driver().copy_async(to, from, bytes, stream), "cuMemcpyDtoDAsync"); });
    const double rotated = device_us(stream, [&](int n) {
      const uint64_t at = static_cast<uint64_t>(n) % places * bytes;
      check(driver().copy_async(to + at, from + at, bytes, stream), "cuMemcpyDtoDAsync");
    });
    const double kernel = device_us(
        stream, [&](int) { launch(kernels.copy16, grid, 256, stream, Pointer{to}, Pointer{from}, vectors); });
    const double fill =
        device_us(stream, [&](int) { check(driver().fill_async(to, 3, bytes, stream), "cuMemsetD8Async"); });
    json["sizes"].push_back({{"bytes", bytes},
                             {"copy_us", copy},
                             {"copy_gb_s", gigabytes(2 * bytes, copy)},
                             {"rotated_copy_us", rotated},
                             {"rotated_copy_gb_s", gigabytes(2 * bytes, rotated)},
                             {"kernel_us", kernel},
                             {"kernel_gb_s", gigabytes(2 * bytes, kernel)},
                             {"fill_us", fill},
                             {"fill_gb_s", gigabytes(bytes, fill)}});
  }
  return json;
}

Json host_copies(const Scale& scale) {
  const Stream stream, other;
  const size_t most = 256 * scale.mib;
  const Memory device(most), device2(most);
  const Pinned pinned(most), pinned2(most);
  std::vector<char> pageable(64 * scale.mib, 1);
  const auto in = [&](const Stream& on, Pointer to, const void* from, size_t bytes) {
    check(driver().copy_to_device_async(to, from, bytes, on), "cuMemcpyHtoDAsync");
  };
  const auto out = [&](const Stream& on, void* to, Pointer from, size_t bytes) {
    check(driver().copy_to_host_async(to, from, bytes, on), "cuMemcpyDtoHAsync");
  };
  const auto and_wait = [&](const std::function<void()>& one) {
    std::vector<double> times;
    for (int n = 0; n < 30; ++n) {
      times.push_back(host_us([&] {
        one();
        stream.wait();
      }));
    }
    return median(times);
  };
  Json json;
  json["method"] =
      "events around repeated copies, median of 5; '_and_wait_us': host clock of one copy and a wait, median "
      "of 30; pinned memory";
  json["sizes"] = Json::array();
  for (size_t bytes = 4; bytes <= most; bytes *= bytes < 4 * kKiB ? 32 : 4) {
    Json one{{"bytes", bytes}};
    const double to_device = device_us(
        stream, [&](int) { in(stream, device, pinned, bytes); }, 20000, 3);
    const double to_host = device_us(
        stream, [&](int) { out(stream, pinned, device, bytes); }, 20000, 3);
    one["to_device_us"] = to_device;
    one["to_device_gb_s"] = gigabytes(bytes, to_device);
    one["to_host_us"] = to_host;
    one["to_host_gb_s"] = gigabytes(bytes, to_host);
    if (bytes <= 4 * scale.mib) {
      one["to_device_and_wait_us"] = and_wait([&] { in(stream, device, pinned, bytes); });
      one["to_host_and_wait_us"] = and_wait([&] { out(stream, pinned, device, bytes); });
    }
    if (bytes >= scale.mib && bytes <= pageable.size()) {
      const double pageable_in = device_us(
          stream, [&](int) { in(stream, device, pageable.data(), bytes); }, 20000, 3);
      const double pageable_out = device_us(
          stream, [&](int) { out(stream, pageable.data(), device, bytes); }, 20000, 3);
      one["pageable_to_device_gb_s"] = gigabytes(bytes, pageable_in);
      one["pageable_to_host_gb_s"] = gigabytes(bytes, pageable_out);
    }
    json["sizes"].push_back(one);
  }
  // Both directions at the same time.
  std::vector<double> times;
  for (int n = 0; n < 5; ++n) {
    times.push_back(host_us([&] {
      for (int k = 0; k < 4; ++k) {
        in(stream, device, pinned, 64 * scale.mib);
        out(other, pinned2, device2, 64 * scale.mib);
      }
      stream.wait();
      other.wait();
    }));
  }
  json["both_directions_gb_s"] = gigabytes(8 * 64 * scale.mib, median(times));
  return json;
}

Json allocation(const Scale& scale) {
  const Stream stream;
  Json json;
  json["method"] = "host clock, median of 9 (of 3 from 256 MiB); 'pool': cuMemAllocAsync, warm";
  json["sizes"] = Json::array();
  for (const size_t bytes :
       {size_t{256}, 4 * kKiB, scale.mib, 2 * scale.mib, 32 * scale.mib, 256 * scale.mib, 4 * scale.gib}) {
    const int samples = bytes < 256 * scale.mib ? 9 : 3;
    std::vector<double> allocate, free, pool, pool_free, pin, unpin;
    for (int n = 0; n < samples; ++n) {
      Pointer address = 0;
      allocate.push_back(host_us([&] { check(driver().allocate(&address, bytes), "cuMemAlloc"); }));
      free.push_back(host_us([&] { check(driver().free(address), "cuMemFree"); }));
      pool.push_back(
          host_us([&] { check(driver().allocate_async(&address, bytes, stream), "cuMemAllocAsync"); }));
      pool_free.push_back(host_us([&] { check(driver().free_async(address, stream), "cuMemFreeAsync"); }));
      if (bytes > scale.gib) continue;
      void* memory = nullptr;
      pin.push_back(host_us([&] { check(driver().allocate_host(&memory, bytes, 0), "cuMemHostAlloc"); }));
      unpin.push_back(host_us([&] { check(driver().free_host(memory), "cuMemFreeHost"); }));
    }
    stream.wait();
    Json one{{"bytes", bytes},
             {"allocate_us", median(allocate)},
             {"free_us", median(free)},
             {"pool_allocate_us", median(pool)},
             {"pool_free_us", median(pool_free)}};
    if (!pin.empty()) {
      one["pin_us"] = median(pin);
      one["unpin_us"] = median(unpin);
    }
    json["sizes"].push_back(one);
  }
  return json;
}

}  // namespace strata::gpu_tests::facts
