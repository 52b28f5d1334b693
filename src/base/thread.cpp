#include "base/thread.h"

#include <utility>

#include "base/parallel.h"

namespace strata {

OwnedThread::OwnedThread(std::function<void(std::stop_token)> body)
    : thread_([this, body = std::move(body)](std::stop_token stop) {
        try {
          keep_to_cpu_quota();
          body(std::move(stop));
        } catch (...) {
          error_ = std::current_exception();
        }
      }) {}

OwnedThread::~OwnedThread() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void OwnedThread::join() {
  if (thread_.joinable()) thread_.join();
  if (auto error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
}

}  // namespace strata
