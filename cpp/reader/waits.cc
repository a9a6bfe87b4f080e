#include "reader/waits.h"

#include <algorithm>

namespace torchparquet {
namespace {

int64_t Nanoseconds(ConsumerWait::Clock::time_point time) {
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

}  // namespace

// Relaxed: the word passes nothing else on.
void ConsumerWait::Begin(Clock::time_point now) {
  const int64_t waited = word_.load(std::memory_order_relaxed) >> 1;
  word_.store((waited - Nanoseconds(now)) * 2 + 1, std::memory_order_relaxed);
}

void ConsumerWait::End(Clock::time_point now) {
  const int64_t before = word_.load(std::memory_order_relaxed) >> 1;
  word_.store((before + Nanoseconds(now)) * 2, std::memory_order_relaxed);
}

std::chrono::nanoseconds ConsumerWait::Total(Clock::time_point now) const {
  const int64_t word = word_.load(std::memory_order_relaxed);
  const bool is_waiting = (word & 1) != 0;
  return std::chrono::nanoseconds((word >> 1) + (is_waiting ? Nanoseconds(now) : 0));
}

void RoomWaits::Count(Clock::time_point now, int64_t begun) {
  num_waiting_ += begun;
  all_ -= begun * now.time_since_epoch();
  beside_ -= begun * consumer_->Total(now);
}

RoomWaits::Sums RoomWaits::Total(Clock::time_point now) const {
  const auto all = all_ + num_waiting_ * std::chrono::nanoseconds(now.time_since_epoch());
  // The consumer may have begun or ended a wait after `now` was read.
  const auto for_memory =
      std::clamp(beside_ + num_waiting_ * consumer_->Total(now),
                 std::chrono::nanoseconds(0), std::max(all, std::chrono::nanoseconds(0)));
  return {.for_consumer = all - for_memory, .for_memory = for_memory};
}

void ThreadEnds::Begin() {
  ++num_running_;
  ends_.reserve(ends_.size() + static_cast<size_t>(num_running_));
}

void ThreadEnds::End(Clock::time_point now) noexcept {
  --num_running_;
  if (!stop_ && ends_.size() < ends_.capacity()) ends_.push_back(now);
}

void ThreadEnds::Stop(Clock::time_point now) {
  if (!stop_ && num_running_ > 0) stop_ = now;
}

std::chrono::nanoseconds ThreadEnds::Idle(Clock::time_point now) const {
  if (ends_.empty()) return std::chrono::nanoseconds(0);
  const Clock::time_point last = num_running_ > 0 ? now : ends_.back();
  std::chrono::nanoseconds idle(0);
  for (const Clock::time_point end : ends_) idle += stop_.value_or(last) - end;
  return idle;
}

TimedLock::TimedLock(std::mutex* mutex, LockTimes* times)
    : lock_(*mutex, std::defer_lock), times_(times) {
  Lock();
}

TimedLock::~TimedLock() {
  if (lock_.owns_lock()) Unlock();
}

void TimedLock::Lock() {
  const auto begin = Clock::now();
  lock_.lock();
  since_ = Clock::now();
  times_->waited += since_ - begin;
}

void TimedLock::Unlock() {
  times_->held += Clock::now() - since_;
  lock_.unlock();
}

void TimedLock::Wait(std::condition_variable* changed) {
  times_->held += Clock::now() - since_;
  changed->wait(lock_);
  since_ = Clock::now();
}

void IdleThreads::Wake() {
  may_find_ = true;
  work_.notify_one();
}

void IdleThreads::WakeAll() {
  may_find_ = true;
  work_.notify_all();
  spare_.notify_all();
}

void IdleThreads::Wait(TimedLock* lock) {
  may_find_ = false;
  ++num_waiting_;
  lock->Wait(&work_);
  --num_waiting_;
}

void IdleThreads::WaitAsSpare(TimedLock* lock) {
  if (has_waiting()) WakeNext();  // it may have been woken for a task
  spare_waits_ = true;
  lock->Wait(&spare_);
  spare_waits_ = false;
}

}  // namespace torchparquet
