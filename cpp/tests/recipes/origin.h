#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/byte_range.h"

namespace torchparquet::testing {

// Holds a reply back until it is opened.
class Gate {
 public:
  void Open();
  void Wait();
  // Returns true if it was opened within `milliseconds`.
  bool WaitFor(int64_t milliseconds);
  // Returns when `count` replies wait here, or have waited.
  void AwaitWaiting(int64_t count);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
  int64_t num_waiting_ = 0;
};

// A port of 127.0.0.1. Connections to it are refused until somebody listens, and nobody
// else can get it meanwhile.
class Port {
 public:
  Port();
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  int descriptor() const { return descriptor_; }
  std::string url(const std::string& target = "/object") const;

 private:
  int descriptor_ = -1;
  int number_ = 0;
};

// An HTTP server on 127.0.0.1 that holds one object and answers by a script.
class Origin {
 public:
  struct Request {
    std::string target;
    std::map<std::string, std::string> headers;  // by name in lower case
    int64_t number = 0;                          // from 0, over all connections
    int64_t connection = 0;

    bool has(const std::string& name) const { return headers.contains(name); }
  };
  struct Reply {
    enum class End { kKeep, kClose, kReset };

    int64_t status = 206;
    std::vector<std::string> headers = {};
    std::string body = {};
    int64_t told_bytes = -1;   // Content-Length, if not that of the body
    bool tells_length = true;  // otherwise the body ends with the connection
    std::shared_ptr<Gate> gate = nullptr;
    int64_t gate_at = -1;  // bytes of the body before the gate; negative: the head
    int64_t drip_milliseconds = 0;  // per byte after the gate, until it opens
    End end = End::kKeep;
    int64_t end_at = -1;  // bytes of the body before the end; negative: all
  };
  using Script = std::function<Reply(const Origin&, const Request&)>;
  // Right answers, of which those to requests `first` to `last` wait at the gate.
  static Script Gated(std::shared_ptr<Gate> gate, int64_t first = 0,
                      int64_t last = std::numeric_limits<int64_t>::max());

  // Without a script, all answers are right.
  explicit Origin(int64_t num_bytes, Script script = nullptr);
  ~Origin();
  Origin(const Origin&) = delete;
  Origin& operator=(const Origin&) = delete;

  // The right answer to a request, with If-Match and ranges.
  Reply Right(const Request& request) const;
  static Reply Status(int64_t status, std::vector<std::string> headers = {},
                      std::string body = {});

  std::string url(const std::string& target = "/object") const {
    return port_.url(target);
  }
  const std::string& content() const { return content_; }
  const std::string& etag() const { return etag_; }

  std::vector<Request> requests() const;
  int64_t num_requests() const;
  int64_t num_connections() const;
  void AwaitRequests(int64_t count) const;

 private:
  void Accept();
  void Serve(int connection, int64_t number);
  bool Answer(int connection, const Reply& reply);
  bool SendBody(int connection, const Reply& reply, int64_t end);

  std::string content_;
  const std::string etag_ = "\"0123456789abcdef\"";
  const Script script_;
  const Port port_;

  mutable std::mutex mutex_;  // guards all below
  mutable std::condition_variable changed_;
  std::vector<Request> requests_;
  std::vector<int> connections_;  // -1 once closed
  std::vector<std::shared_ptr<Gate>> gates_;
  std::vector<std::thread> threads_;
  bool is_over_ = false;
  std::thread acceptor_;
};

}  // namespace torchparquet::testing
