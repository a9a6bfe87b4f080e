#include "remote/transport/reactor.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace torchparquet {
namespace {

using std::chrono::milliseconds;
using Kind = Verdict::Kind;

// Readers hear of so many bytes at once; of fewer when some time has passed, or if one
// waits.
constexpr int64_t kTellBytes = int64_t{64} << 10;
// How exact clocks are.
constexpr auto kWatchEvery = milliseconds(10);
constexpr auto kIdle = milliseconds(60'000);
// Requests that one fetch may send because of addresses that ended. The second address
// may be by credentials that another process was given, and have ended too.
constexpr int64_t kMaxRefused = 3;

double SecondsBetween(std::chrono::steady_clock::time_point begin,
                      std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// The reason with what the store's owner wants to know.
std::string Reason(const std::string& reason, const Answer& answer) {
  if (answer.request_id.empty()) return reason;
  return reason + ", request id " + Printable(answer.request_id, 100);
}

std::string Range(const Fetch& fetch) {
  return Text("bytes ", fetch.range().offset, "-", fetch.range().end() - 1);
}

}  // namespace

Reactor::Reactor(const FetchOptions& options)
    : options_(options),
      pool_(this, options),
      budget_(options.max_connections),
      random_(std::random_device()()),
      last_watch_(Clock::now()) {
  counters_.concurrency = budget_.allowed();
}

bool Reactor::Post(Message message) {
  const std::lock_guard lock(mutex_);
  if (is_closed_ || is_stopped_) return false;
  messages_.push_back(std::move(message));
  if (messages_.size() == 1) pool_.Wake();
  return true;
}

void Reactor::Stop() {
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  pool_.Wake();
}

FetchStats Reactor::stats() const {
  FetchStats stats;
  ForEachCount(stats, counters_, [](int64_t& to, const auto& from) { to = from; });
  return stats;
}

void Reactor::Run() noexcept {
  while (true) {
    try {
      while (TakeMessages()) Step();
      return Close(stopped_);
    } catch (...) {
      const Error error = CurrentErrorAt({});
      if (error.kind() != ErrorKind::kOutOfMemory) return Close(error);
      // Later fetches may find memory again.
      FailAll(error);
    }
  }
}

void Reactor::Close(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    taken_.swap(messages_);
  }
  FailAll(error);
}

void Reactor::FailAll(const Error& error) {
  pool_.Clear();
  queue_ = {};
  for (const auto& [fetch, job] : std::exchange(jobs_, {})) job->fetch->Fail(error);
  for (const Message& message : std::exchange(taken_, {})) {
    if (message.kind == Message::Kind::kStart) message.fetch->Fail(error);
  }
}

bool Reactor::TakeMessages() {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopped_) return false;
    taken_.swap(messages_);
  }
  for (const Message& message : taken_) Take(message);
  taken_.clear();
  return true;
}

void Reactor::Take(const Message& message) {
  if (message.kind == Message::Kind::kWake) return queue_.Wake();
  const std::shared_ptr<Fetch>& fetch = message.fetch;
  if (message.kind == Message::Kind::kStart) {
    if (fetch->range().num_bytes <= 0) return fetch->Arrive(0);
    const Patience patience = fetch->object().patience.value_or(options_);
    const auto job = std::make_shared<FetchJob>(
        FetchJob{.fetch = fetch,
                 .retries = RetryPolicy(patience.max_tries, patience.max_seconds),
                 .may_hedge = patience.hedges,
                 .order = num_jobs_++,
                 .etag = fetch->object().etag});
    if (jobs_.emplace(fetch.get(), job).second) queue_.Add(job);
    return;
  }
  const auto found = jobs_.find(fetch.get());
  if (found == jobs_.end()) return;
  const Job job = found->second;
  if (message.kind == Message::Kind::kHurry) return queue_.Hurry(job);
  queue_.Remove(job);
  AbandonAll(job);
  jobs_.erase(found);
}

void Reactor::Step() {
  DropAbandoned();
  BeginReady();
  pool_.Move();
  while (const auto done = pool_.NextDone()) Finish(*done);
  Tell(/*all=*/false);
  if (const Time now = Clock::now(); now >= last_watch_ + kWatchEvery) Watch(now);
  counters_.concurrency = budget_.allowed();
  Wait();
}

void Reactor::Wait() {
  const Time now = Clock::now();
  Clock::duration wait = kIdle;
  if (pool_.num_active() > 0) wait = last_watch_ + kWatchEvery - now;
  if (const auto next = queue_.next_time()) wait = std::min(wait, *next - now);
  if (queue_.has_ready() && pool_.num_active() < budget_.allowed()) wait = {};
  const auto rounded = std::chrono::ceil<milliseconds>(std::max(wait, Clock::duration()));
  pool_.Wait(static_cast<int>(rounded.count()));
}

void Reactor::BeginReady() {
  while (pool_.num_active() < budget_.allowed()) {
    const Job job = queue_.Next(Clock::now());
    if (job == nullptr) return;
    Begin(job);
  }
}

void Reactor::Begin(const Job& job) {
  const RemoteObject& object = job->fetch->object();
  if (object.addresses == nullptr) {
    return Fail(job, Error(ErrorKind::kInternal, "the object has no addresses"));
  }
  if (auto address = object.addresses->Find(object.number)) {
    try {
      job->fetch->Prepare();
    } catch (const Error& error) {
      return Fail(job, error);
    }
    return Send(job, std::move(address), /*is_hedge=*/false);
  }
  const std::string failure = object.addresses->Failure(object.number);
  if (failure.empty()) return queue_.AddAddressless(job);
  Fail(job, Error(ErrorKind::kIo, failure, {.path = object.path}));
}

void Reactor::Send(const Job& job, std::shared_ptr<const ObjectAddress> address,
                   bool is_hedge) {
  const ByteRange& whole = job->fetch->range();
  const Host& host = hosts_[OriginOf(address->url)];
  pool_.Send(
      {.job = job,
       .address = std::move(address),
       .question = {.range = {whole.offset + job->num_written,
                              whole.num_bytes - job->num_written},
                    .whole_range = whole,
                    .object_bytes = job->fetch->object().num_bytes,
                    .etag = job->etag,
                    .has_condition = IsStrongETag(job->etag) && !job->is_unconditional &&
                                     !host.takes_no_condition},
       .is_hedge = is_hedge});
  ++counters_.num_requests;
  if (is_hedge) {
    ++counters_.num_hedges;
  } else {
    job->retries.BeginTry();
    hedges_.Earn();
  }
}

bool Reactor::OnBody(Transfer* transfer) {
  FetchJob& job = transfer->job();
  Host& host = hosts_[transfer->origin()];
  FirstByteTimes& first_bytes = host.first_bytes;
  const Time now = Clock::now();
  first_bytes.Add(SecondsBetween(transfer->begin(), now));
  if (job.fetch->is_over()) return false;
  if (Transfer* other = pool_.OtherOf(*transfer)) {
    // It takes at least this long. Hosts whose slow answers do not count seem quick.
    first_bytes.Add(SecondsBetween(other->begin(), now));
    other->Abandon();
    if (transfer->request().is_hedge) ++counters_.num_hedges_won;
  }
  job.num_refused = 0;
  job.refused = nullptr;
  // It was the condition that the store did not like.
  if (job.is_unconditional) host.takes_no_condition = true;
  if (job.etag.empty()) job.etag = transfer->answer().etag;
  return true;
}

void Reactor::OnBytes(Transfer* transfer, int64_t num_bytes) {
  transfer->job().num_written += num_bytes;
  counters_.bytes_received += num_bytes;
}

void Reactor::OnWaste(int64_t num_bytes) {
  counters_.bytes_received += num_bytes;
  counters_.bytes_wasted += num_bytes;
}

void Reactor::Finish(const TransferPool::Done& done) {
  Transfer* transfer = done.transfer;
  const Job job = transfer->request().job;
  if (job->fetch->is_over()) AbandonAll(job);
  if (transfer->is_abandoned()) {
    if (job->fetch->is_over()) jobs_.erase(job->fetch.get());
    return pool_.Release(transfer);
  }
  Verdict verdict = transfer->Result(done.code);
  if (verdict.kind == Kind::kRedirect) {
    const auto obstacle = transfer->Redirect(Clock::now());
    if (!obstacle) {
      ++counters_.num_requests;
      return pool_.SendAgain(transfer);
    }
    verdict = {.kind = Kind::kFailure, .reason = *obstacle};
  }
  // If all are slow, fewer are quicker.
  if (verdict.kind == Kind::kBusy || done.code == CURLE_OPERATION_TIMEDOUT) {
    budget_.Overloaded(Clock::now());
  }
  // The other request for the same bytes may do better.
  const bool may_come_otherwise =
      (verdict.kind == Kind::kBusy || verdict.kind == Kind::kAgain) &&
      pool_.OtherOf(*transfer) != nullptr;
  if (!may_come_otherwise) {
    AbandonAll(job);
    TellNew(job.get());
    Decide(job, *transfer, verdict);
  }
  pool_.Release(transfer);
}

void Reactor::Decide(const Job& job, const Transfer& ended, const Verdict& verdict) {
  switch (verdict.kind) {
    case Kind::kBody:
      return Complete(job);
    case Kind::kRefused:
      return Refuse(job, ended, verdict);
    case Kind::kNoCondition:
      job->is_unconditional = true;
      ++counters_.num_retries;
      return queue_.Add(job);
    case Kind::kBusy:
    case Kind::kAgain:
      return Retry(job, ended, verdict);
    case Kind::kRedirect:
    case Kind::kFailure:
      break;
  }
  const bool is_of_object = verdict.error != ErrorKind::kIo;
  const std::string begin =
      is_of_object ? "" : "cannot read " + Range(*job->fetch) + ": ";
  Fail(job, Error(verdict.error, begin + Reason(verdict.reason, ended.answer()),
                  {.path = job->fetch->object().path}));
}

void Reactor::Refuse(const Job& job, const Transfer& ended, const Verdict& verdict) {
  const RemoteObject& object = job->fetch->object();
  const ObjectAddress& address = *ended.request().address;
  // An address that was refused and comes again has nothing newer after it.
  const bool is_same = job->refused != nullptr && job->refused->IsSameAs(address);
  job->refused = ended.request().address;
  const bool is_due = object.addresses->Refused(object.number, address);
  if (is_due && !is_same) return Retry(job, ended, verdict);
  if (++job->num_refused < kMaxRefused) {
    ++counters_.num_retries;
    return queue_.Add(job);
  }
  Fail(job, Error(ErrorKind::kIo,
                  "the store refuses access: " + Reason(verdict.reason, ended.answer()) +
                      address.remedy,
                  {.path = object.path}));
}

void Reactor::Retry(const Job& job, const Transfer& ended, const Verdict& verdict) {
  const double draw = std::uniform_real_distribution<>()(random_);
  const auto time =
      job->retries.After({.now = Clock::now(),
                          .retry_after_seconds = ended.retry_after_seconds(),
                          .draw = draw,
                          .is_busy = verdict.kind == Kind::kBusy});
  if (time) {
    ++counters_.num_retries;
    return queue_.AddAfter(*time, job);
  }
  Fail(job,
       Error(ErrorKind::kIo,
             Text("cannot read ", Range(*job->fetch), " after ", job->retries.num_tries(),
                  " tries: ", Reason(verdict.reason, ended.answer())),
             {.path = job->fetch->object().path}));
}

void Reactor::Complete(const Job& job) {
  budget_.Completed();
  jobs_.erase(job->fetch.get());
  job->fetch->Arrive(job->num_written);
}

void Reactor::Fail(const Job& job, const Error& error) {
  jobs_.erase(job->fetch.get());
  job->fetch->Fail(error);
}

void Reactor::AbandonAll(const Job& job) {
  for (const auto& transfer : pool_.active()) {
    if (transfer->request().job == job) transfer->Abandon();
  }
}

void Reactor::DropAbandoned() {
  for (size_t i = pool_.active().size(); i-- > 0;) {
    Transfer* transfer = pool_.active()[i].get();
    if (!transfer->is_abandoned()) continue;
    pool_.Break(transfer);
    pool_.Release(transfer);
  }
}

void Reactor::Tell(bool all) {
  for (const auto& transfer : pool_.active()) {
    if (!transfer->has_body()) continue;
    FetchJob& job = transfer->job();
    const int64_t num_new = job.num_written - job.num_told;
    if (num_new >= kTellBytes || all || job.is_hurried) TellNew(&job);
  }
}

void Reactor::TellNew(FetchJob* job) {
  // The last byte is told of when the answer has ended well.
  const bool is_whole = job->num_written == job->fetch->range().num_bytes;
  if (job->num_written == job->num_told || is_whole) return;
  job->num_told = job->num_written;
  job->fetch->Arrive(job->num_told);
}

void Reactor::Watch(Time now) {
  last_watch_ = now;
  Tell(/*all=*/true);
  Hedge(now);
}

void Reactor::Hedge(Time now) {
  std::vector<Transfer*> slow;
  for (const auto& transfer : pool_.active()) {
    if (transfer->has_body() || transfer->is_abandoned()) continue;
    if (!transfer->request().job->may_hedge) continue;
    const auto limit =
        hosts_[transfer->origin()].first_bytes.SlowAfter(options_.min_hedge_seconds);
    if (limit && SecondsBetween(transfer->begin(), now) > *limit) {
      slow.push_back(transfer.get());
    }
  }
  const int64_t num_in_flight = pool_.num_active();
  for (const Transfer* transfer : slow) {
    if (pool_.OtherOf(*transfer) != nullptr) continue;
    if (!hedges_.Spend(std::ssize(slow), num_in_flight)) return;
    Send(transfer->request().job, transfer->request().address, /*is_hedge=*/true);
  }
}

}  // namespace torchparquet
