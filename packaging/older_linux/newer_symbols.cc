// Symbols that the headers of gcc 12 refer to and the C++ library of an older system lacks.
// Compiled into each extension, and not visible outside of it.

#include <cstdlib>
#include <exception>
#include <new>
#include <stdexcept>

namespace std {

void __throw_bad_array_new_length() { throw bad_array_new_length(); }

runtime_error::runtime_error(runtime_error&& other) noexcept
    : runtime_error(static_cast<const runtime_error&>(other)) {}

runtime_error& runtime_error::operator=(runtime_error&& other) noexcept {
  return *this = static_cast<const runtime_error&>(other);
}

}  // namespace std

namespace __cxxabiv1 {

void __terminate(std::terminate_handler handler) noexcept {
  handler();
  std::abort();
}

}  // namespace __cxxabiv1
