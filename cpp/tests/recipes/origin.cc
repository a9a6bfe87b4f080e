#include "recipes/origin.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "draws.h"

namespace torchparquet::testing {
namespace {

bool SendAll(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

// Reads to the end of a head. Empty when the peer has gone.
std::string ReadHead(int connection) {
  std::string head;
  char byte = 0;
  while (!head.ends_with("\r\n\r\n")) {
    if (recv(connection, &byte, 1, 0) != 1) return {};
    head.push_back(byte);
  }
  return head;
}

Origin::Request Parse(const std::string& head) {
  Origin::Request request;
  std::istringstream lines(head);
  std::string method;
  lines >> method >> request.target;
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && line != "\r") {
    const size_t colon = line.find(':');
    std::string name = line.substr(0, colon);
    std::ranges::transform(name, name.begin(), [](unsigned char c) {
      return static_cast<char>(std::tolower(c));
    });
    std::string value = line.substr(colon + 1);
    value.erase(0, value.find_first_not_of(' '));
    while (!value.empty() && value.back() == '\r') value.pop_back();
    request.headers[name] = value;
  }
  return request;
}

}  // namespace

void Gate::Open() {
  const std::lock_guard lock(mutex_);
  is_open_ = true;
  changed_.notify_all();
}

void Gate::Wait() {
  std::unique_lock lock(mutex_);
  ++num_waiting_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return is_open_; });
}

bool Gate::WaitFor(int64_t milliseconds) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::milliseconds(milliseconds),
                           [&] { return is_open_; });
}

void Gate::AwaitWaiting(int64_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return num_waiting_ >= count; });
}

Port::Port() : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  // The interface of sockets takes addresses of any family.
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (descriptor_ < 0 || bind(descriptor_, any, length) != 0 ||
      getsockname(descriptor_, any, &length) != 0) {
    throw std::runtime_error("cannot take a port");
  }
  number_ = ntohs(address.sin_port);
}

Port::~Port() { close(descriptor_); }

std::string Port::url(const std::string& target) const {
  return "http://127.0.0.1:" + std::to_string(number_) + target;
}

Origin::Origin(int64_t num_bytes, Script script) : script_(std::move(script)) {
  Draws draws(static_cast<uint64_t>(num_bytes) + 1);
  for (int64_t i = 0; i < num_bytes; ++i) {
    content_.push_back(static_cast<char>(draws.Bits()));
  }
  if (listen(port_.descriptor(), 128) != 0) throw std::runtime_error("cannot listen");
  acceptor_ = std::thread(&Origin::Accept, this);
}

Origin::~Origin() {
  shutdown(port_.descriptor(), SHUT_RDWR);
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    for (const auto& gate : gates_) gate->Open();
    for (const int connection : connections_) {
      if (connection >= 0) shutdown(connection, SHUT_RDWR);
    }
  }
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
}

Origin::Reply Origin::Status(int64_t status, std::vector<std::string> headers,
                             std::string body) {
  return {.status = status, .headers = std::move(headers), .body = std::move(body)};
}

Origin::Script Origin::Gated(std::shared_ptr<Gate> gate, int64_t first, int64_t last) {
  return [=](const Origin& self, const Request& request) {
    Reply reply = self.Right(request);
    if (first <= request.number && request.number <= last) reply.gate = gate;
    return reply;
  };
}

Origin::Reply Origin::Right(const Request& request) const {
  if (request.has("if-match") && request.headers.at("if-match") != etag_) {
    return Status(412);
  }
  long long first = 0;
  long long last = 0;
  const std::string range = request.has("range") ? request.headers.at("range") : "";
  const auto size = static_cast<long long>(content_.size());
  if (std::sscanf(range.c_str(), "bytes=%lld-%lld", &first, &last) != 2) {
    return Status(200, {"ETag: " + etag_}, content_);
  }
  if (first >= size) return Status(416);
  last = std::min(last, size - 1);
  return Status(
      206,
      {"ETag: " + etag_, "Content-Range: bytes " + std::to_string(first) + "-" +
                             std::to_string(last) + "/" + std::to_string(size)},
      content_.substr(static_cast<size_t>(first), static_cast<size_t>(last - first + 1)));
}

std::vector<Origin::Request> Origin::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

int64_t Origin::num_requests() const { return std::ssize(requests()); }

int64_t Origin::num_connections() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(connections_);
}

void Origin::AwaitRequests(int64_t count) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return std::ssize(requests_) >= count; });
}

void Origin::Accept() {
  while (true) {
    const int connection = accept4(port_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
    const std::lock_guard lock(mutex_);
    if (connection < 0 || is_over_) {
      if (connection >= 0) close(connection);
      return;
    }
    const int one = 1;
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connections_.push_back(connection);
    threads_.emplace_back(&Origin::Serve, this, connection, std::ssize(connections_) - 1);
  }
}

void Origin::Serve(int connection, int64_t number) {
  while (true) {
    const std::string head = ReadHead(connection);
    if (head.empty()) break;
    Request request = Parse(head);
    {
      const std::lock_guard lock(mutex_);
      request.connection = number;
      request.number = std::ssize(requests_);
      requests_.push_back(request);
      changed_.notify_all();
    }
    const Reply reply = script_ ? script_(*this, request) : Right(request);
    if (reply.gate != nullptr) {
      const std::lock_guard lock(mutex_);
      gates_.push_back(reply.gate);
      if (is_over_) reply.gate->Open();
    }
    if (!Answer(connection, reply)) break;
  }
  const std::lock_guard lock(mutex_);
  close(connection);
  connections_[static_cast<size_t>(number)] = -1;
}

bool Origin::Answer(int connection, const Reply& reply) {
  if (reply.gate != nullptr && reply.gate_at < 0) reply.gate->Wait();
  const auto size = std::ssize(reply.body);
  std::string head = "HTTP/1.1 " + std::to_string(reply.status) + " Scripted\r\n";
  for (const std::string& header : reply.headers) head += header + "\r\n";
  if (reply.tells_length) {
    const int64_t told = reply.told_bytes >= 0 ? reply.told_bytes : size;
    head += "Content-Length: " + std::to_string(told) + "\r\n";
  }
  if (!SendAll(connection, head + "\r\n")) return false;
  const int64_t end = reply.end_at >= 0 ? std::min(reply.end_at, size) : size;
  if (!SendBody(connection, reply, end)) return false;
  if (reply.end == Reply::End::kReset) {
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(connection, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }
  return reply.end == Reply::End::kKeep && reply.tells_length;
}

bool Origin::SendBody(int connection, const Reply& reply, int64_t end) {
  const std::string_view body =
      std::string_view(reply.body).substr(0, static_cast<size_t>(end));
  if (reply.gate == nullptr || reply.gate_at < 0 || reply.gate_at >= end) {
    return SendAll(connection, body);
  }
  auto sent = static_cast<size_t>(reply.gate_at);
  if (!SendAll(connection, body.substr(0, sent))) return false;
  if (reply.drip_milliseconds == 0) {
    reply.gate->Wait();
  } else {
    while (sent < body.size() && !reply.gate->WaitFor(reply.drip_milliseconds)) {
      if (!SendAll(connection, body.substr(sent++, 1))) return false;
    }
  }
  return SendAll(connection, body.substr(sent));
}

}  // namespace torchparquet::testing
