#include "remote/transport/transfer_pool.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "base/errors.h"

namespace torchparquet {
namespace {

void Check(CURLMcode code) {
  if (code == CURLM_OK) return;
  if (code == CURLM_OUT_OF_MEMORY) throw std::bad_alloc();
  throw Error(ErrorKind::kInternal,
              "libcurl cannot go on: " + std::string(Curl().multi_strerror(code)));
}

}  // namespace

TransferPool::TransferPool(Transfer::Owner* owner, const FetchOptions& options)
    : owner_(owner), options_(options) {
  InitCurl();
  share_.reset(Curl().share_init());
  multi_.reset(Curl().multi_init());
  if (share_ == nullptr || multi_ == nullptr) throw std::bad_alloc();
  Curl().share_setopt(share_.get(), CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION);
  // Without it libcurl closes connections while few are in use. Hedges have theirs too.
  const int64_t num_kept = options.max_connections + options.max_connections / 4;
  Check(Curl().multi_setopt(multi_.get(), CURLMOPT_MAXCONNECTS,
                            static_cast<long>(num_kept)));
  Check(Curl().multi_setopt(multi_.get(), CURLMOPT_PIPELINING, CURLPIPE_NOTHING));
}

TransferPool::~TransferPool() { Clear(); }

void TransferPool::Send(Transfer::Request request) {
  if (idle_.empty()) {
    idle_.push_back(std::make_unique<Transfer>(owner_, options_, share_.get()));
  }
  idle_.back()->Begin(std::move(request), Transfer::Clock::now());
  active_.push_back(std::move(idle_.back()));
  idle_.pop_back();
  Check(Curl().multi_add_handle(multi_.get(), active_.back()->handle()));
}

void TransferPool::SendAgain(Transfer* transfer) {
  Check(Curl().multi_add_handle(multi_.get(), transfer->handle()));
}

void TransferPool::Move() {
  int num_running = 0;
  Check(Curl().multi_perform(multi_.get(), &num_running));
}

std::optional<TransferPool::Done> TransferPool::NextDone() {
  int num_left = 0;
  while (const CURLMsg* message = Curl().multi_info_read(multi_.get(), &num_left)) {
    if (message->msg != CURLMSG_DONE) continue;
    void* transfer = nullptr;
    Curl().easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
    // The message goes when the handle does.
    const Done done{static_cast<Transfer*>(transfer), message->data.result};
    Curl().multi_remove_handle(multi_.get(), done.transfer->handle());
    return done;
  }
  return std::nullopt;
}

void TransferPool::Break(Transfer* transfer) {
  Curl().multi_remove_handle(multi_.get(), transfer->handle());
}

void TransferPool::Release(Transfer* transfer) {
  const auto found =
      std::ranges::find(active_, transfer, [](const auto& held) { return held.get(); });
  transfer->Reset();
  idle_.push_back(std::move(*found));
  active_.erase(found);
}

void TransferPool::Clear() {
  for (const auto& transfer : active_) Break(transfer.get());
  active_.clear();
  // It may have been about to begin.
  if (!idle_.empty()) idle_.back()->Reset();
}

Transfer* TransferPool::OtherOf(const Transfer& transfer) const {
  const auto found = std::ranges::find_if(active_, [&](const auto& other) {
    return other.get() != &transfer && other->request().job == transfer.request().job &&
           !other->is_abandoned();
  });
  return found == active_.end() ? nullptr : found->get();
}

}  // namespace torchparquet
