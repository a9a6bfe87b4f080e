#pragma once

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace torchparquet {

// Each kind becomes a Python exception class; see bindings/exceptions.cc.
enum class ErrorKind {
  kCorruptFile,
  kChanged,  // since the data set was made
  kEncrypted,
  kFileNotFound,
  kIo,
  kNullValue,
  kCast,
  kListLength,
  kInvalidArgument,
  kOutOfMemory,
  kValuesTooLarge,  // decoded ones, for their bound; a page beyond it is kOutOfMemory
  kNotSupported,
  kStopped,
  kInternal,
};

// The place of a failure in a data set. Empty or negative parts are unknown.
struct ErrorPlace {
  std::string path = {};
  int64_t row_group = -1;
  std::string column = {};
};

// A failure with its kind. The message is printable UTF-8 on one line: static
// text first, values last.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string_view message);
  Error(ErrorKind kind, std::string_view message, const ErrorPlace& place);

  ErrorKind kind() const { return kind_; }

  // The row that the failure is about, counted within its row group as rows are stored;
  // -1 if it is unknown.
  int64_t row() const { return row_; }
  Error WithRow(int64_t row) const;
  // Before the row is known: the value that the failure is about, counted among those
  // that the reader was asked for; -1 if it is unknown.
  int64_t value() const { return value_; }
  Error WithValue(int64_t value) const;
  // A copy with a message of its own if there is memory for one. Copies share theirs, and
  // ThreadSanitizer does not see how the C++ library counts them.
  Error Unshared() const noexcept;
  // True if the message names a place.
  bool is_placed() const { return is_placed_; }

 private:
  ErrorKind kind_;
  int64_t row_ = -1;
  int64_t value_ = -1;
  bool is_placed_ = false;
};

// A message of parts: texts, and numbers in decimal digits. Takes them by value, so that
// loops which may fail keep theirs in registers.
template <typename... Parts>
std::string Text(Parts... parts) {  // NOLINT(performance-unnecessary-value-param)
  std::string text;
  const auto add = [&text](const auto& part) {
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(part)>>) {
      text += std::to_string(part);
    } else {
      text += part;
    }
  };
  (add(parts), ...);
  return text;
}

// Shorthands for the most frequent kinds.
template <typename... Parts>
Error CorruptFile(Parts... parts) {
  return Error(ErrorKind::kCorruptFile, Text(std::move(parts)...));
}

template <typename... Parts>
Error InvalidArgument(Parts... parts) {
  return Error(ErrorKind::kInvalidArgument, Text(std::move(parts)...));
}

// The failures of a page that is too short, and of what waits when a reader is closed.
Error TooFewValues();
Error ReaderClosed();

// The failure of a thread to begin, for which the system or the process had no memory.
Error NoThread(const std::exception& cause);

// Calls `read`, which reads values in parts and counts those of parts before in `done`.
// An error about a value of a part becomes one about a value of all.
template <typename Read>
void ReadParts(const int64_t& done, Read read) {
  try {
    read();
  } catch (const Error& error) {
    if (error.value() < 0) throw;
    throw error.WithValue(done + error.value());
  }
}

// Returns `text` as printable ASCII: other bytes become \xNN, and text longer than
// `max_length` is cut. File content may reach a message, so no byte of it is trusted to
// be UTF-8.
std::string Printable(std::string_view text, size_t max_length = 600);

// As Printable, for a path. Keeps well-formed multi-byte UTF-8, because users name files
// in their own language, except invisible characters.
std::string PrintablePath(std::string_view path);

bool IsUtf8(std::string_view text);

// Turns the exception in flight (ours, Arrow's as the bridge tells it, or the standard
// library's) into an Error placed at `place`. The place is left out if there is no memory
// for a message that tells it.
Error CurrentErrorAt(const ErrorPlace& place) noexcept;

}  // namespace torchparquet
