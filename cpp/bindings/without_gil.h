#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <exception>
#include <future>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

namespace torchparquet {

// Runs `call` without the GIL. The GIL is taken back outside of any destructor,
// because that never returns in a thread that outlives the interpreter.
template <typename Call>
auto WithoutGil(Call&& call) {
  if constexpr (std::is_void_v<decltype(call())>) {
    WithoutGil([&] {
      call();
      return true;
    });
  } else {
    std::optional<decltype(call())> result;
    std::exception_ptr error;
    PyThreadState* thread_state = PyEval_SaveThread();
    try {
      result.emplace(call());
    } catch (...) {
      error = std::current_exception();
    }
    PyEval_RestoreThread(thread_state);
    if (error) std::rethrow_exception(error);
    return std::move(*result);
  }
}

// Runs `call` on a thread of its own and handles signals every 100 ms. If a handler
// raises, as for Ctrl-C, calls `stop`, which must make `call` return soon, and throws
// what it raised. So a function of Python's that `call` asks runs no handler either.
template <typename Call, typename Stop>
auto Interruptible(Call&& call, Stop&& stop) {
  std::future<decltype(call())> running;
  try {
    running = std::async(std::launch::async, std::forward<Call>(call));
  } catch (const std::system_error&) {
    return WithoutGil(call);  // there are no more threads
  }
  const auto is_over = [&] {
    return running.wait_for(std::chrono::milliseconds(100)) == std::future_status::ready;
  };
  while (!WithoutGil(is_over)) {
    if (PyErr_CheckSignals() == 0) continue;
    stop();
    WithoutGil([&] { running.wait(); });
    throw pybind11::error_already_set();
  }
  return running.get();
}

}  // namespace torchparquet
