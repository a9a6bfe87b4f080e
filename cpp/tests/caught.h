#pragma once

#include <optional>
#include <string>

#include "base/errors.h"

namespace torchparquet::testing {

// The Error that `call` throws, if it throws one.
template <typename Call>
std::optional<Error> Caught(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

template <typename Call>
bool Throws(ErrorKind kind, Call&& call) {
  const auto error = Caught(call);
  return error && error->kind() == kind;
}

inline bool Mentions(const Error& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

}  // namespace torchparquet::testing
