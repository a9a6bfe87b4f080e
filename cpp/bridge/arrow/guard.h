#pragma once

#include <arrow/status.h>
#include <parquet/exception.h>

#include <new>
#include <string>
#include <string_view>

#include "bridge/arrow_library.h"

namespace torchparquet::bridge {

inline Failure FailureOf(const arrow::Status& status) {
  if (status.ok()) return {};
  return {status.IsOutOfMemory() ? Failure::Kind::kOutOfMemory : Failure::Kind::kFailed,
          status.message()};
}

// Calls and returns what Arrow threw. Exceptions of others pass.
template <typename Call>
Failure Guard(const Call& call) {
  try {
    call();
    return {};
  } catch (const parquet::ParquetStatusException& error) {
    const bool no_memory = error.status().IsOutOfMemory();
    return {no_memory ? Failure::Kind::kOutOfMemory : Failure::Kind::kFailed,
            error.what()};
  } catch (const parquet::ParquetException& error) {
    // Arrow's parser of footers turns every exception into one of its own.
    const std::string_view message = error.what();
    const bool no_memory = message.find(std::bad_alloc().what()) != message.npos;
    return {no_memory ? Failure::Kind::kOutOfMemory : Failure::Kind::kFailed,
            std::string(message)};
  }
}

}  // namespace torchparquet::bridge
