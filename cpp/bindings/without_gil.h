#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <optional>
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

}  // namespace torchparquet
