#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/byte_range.h"
#include "base/errors.h"

namespace torchparquet {

// A store's answer to a request, as far as it has come.
struct Answer {
  // Takes a line of the head. A status line begins anew.
  void AddLine(std::string_view line);
  // Takes bytes of a body that is a message. Keeps the first few.
  void AddText(std::string_view piece);

  int64_t status = 0;
  int64_t num_bytes = -1;  // Content-Length
  std::string content_range = {};
  std::string content_encoding = {};
  std::string etag = {};
  std::string request_id = {};
  std::string text = {};
};

// The bytes that were asked for.
struct Question {
  ByteRange range;
  ByteRange whole_range;       // of the fetch, whose first part may have come before
  int64_t object_bytes = -1;   // negative: unknown
  std::string etag = {};       // empty: any
  bool has_condition = false;  // If-Match is sent
};

// The meaning of an answer.
struct Verdict {
  enum class Kind {
    kBody,         // the bytes that were asked for
    kRedirect,     // they are elsewhere
    kBusy,         // again, later, and less of it
    kAgain,        // again, later
    kRefused,      // again, with another address
    kNoCondition,  // again, without If-Match
    kFailure,      // never
  };

  Kind kind = Kind::kBody;
  int64_t num_bytes_before = 0;      // kBody: to skip
  int64_t num_bytes_after = 0;       // kBody: to ignore
  ErrorKind error = ErrorKind::kIo;  // kFailure
  std::string reason = {};           // unless kBody; printable
};

// Judges the head of an answer, and its text if it is a message.
Verdict Judge(const Answer& answer, const Question& question);

// True if both name the same content. Weak ones count as strong ones: a store that makes
// one of its bytes makes another of other bytes.
bool IsSameETag(std::string_view left, std::string_view right);
// True if the ETag may stand in an If-Match header.
bool IsStrongETag(std::string_view etag);

}  // namespace torchparquet
