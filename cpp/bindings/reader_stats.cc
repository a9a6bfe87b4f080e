#include <pybind11/stl.h>

#include <chrono>
#include <map>
#include <string>

#include "bindings/module.h"
#include "pages/page_codec.h"
#include "reader/parallel_reader.h"

namespace py = pybind11;

namespace torchparquet {
namespace {

double Seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

template <typename Object>
auto SecondsOf(std::chrono::nanoseconds Object::* member) {
  return [member](const Object& object) { return Seconds(object.*member); };
}

template <typename Part>
auto SecondsIn(Part ReaderStats::* part, std::chrono::nanoseconds Part::* member) {
  return [=](const ReaderStats& stats) { return Seconds(stats.*part.*member); };
}

auto Fetched(int64_t FetchStats::* member) {
  return [member](const ReaderStats& stats) { return stats.fetched.*member; };
}

}  // namespace

void BindStats(py::module_& m) {
  py::class_<CostSums>(m, "CostSums")
      .def_readonly("num_tasks", &CostSums::num_tasks)
      .def_readonly("bytes_read", &CostSums::bytes_read)
      .def_readonly("num_reads", &CostSums::num_reads)
      .def_readonly("bytes_decompressed", &CostSums::bytes_decompressed)
      .def_readonly("num_decompressed", &CostSums::num_decompressed)
      .def_property_readonly("open_seconds", SecondsOf<CostSums>(&CostSums::open_time))
      .def_property_readonly("read_seconds", SecondsOf<CostSums>(&CostSums::read_time))
      .def_property_readonly("decompress_seconds",
                             SecondsOf<CostSums>(&CostSums::decompress_time))
      .def_property_readonly("decode_seconds",
                             SecondsOf<CostSums>(&CostSums::decode_time));
  py::class_<ReaderStats>(m, "ReaderStats")
      .def_readonly("batches", &ReaderStats::batches)
      .def_readonly("rows", &ReaderStats::rows)
      .def_readonly("delivered_bytes", &ReaderStats::delivered_bytes)
      .def_readonly("columns", &ReaderStats::columns)
      .def_property_readonly("codecs",
                             [](const ReaderStats& stats) {
                               std::map<std::string, CostSums> named;
                               for (const auto& [codec, sums] : stats.codecs) {
                                 named[CodecName(codec)].Add(sums);
                               }
                               return named;
                             })
      .def_property_readonly("wait_seconds",
                             SecondsOf<ReaderStats>(&ReaderStats::consumer_wait))
      .def_property_readonly("first_wait_seconds",
                             SecondsOf<ReaderStats>(&ReaderStats::first_wait))
      .def_property_readonly(
          "wait_for_loop_seconds",
          SecondsIn(&ReaderStats::room_waits, &RoomWaits::Sums::for_consumer))
      .def_property_readonly(
          "wait_for_memory_seconds",
          SecondsIn(&ReaderStats::room_waits, &RoomWaits::Sums::for_memory))
      .def_property_readonly("idle_at_end_seconds",
                             SecondsOf<ReaderStats>(&ReaderStats::idle_at_end))
      .def_property_readonly("wait_for_lock_seconds",
                             SecondsIn(&ReaderStats::lock_times, &LockTimes::waited))
      .def_property_readonly("held_lock_seconds",
                             SecondsIn(&ReaderStats::lock_times, &LockTimes::held))
      .def_property_readonly("wait_for_bytes_seconds",
                             SecondsOf<ReaderStats>(&ReaderStats::byte_waits))
      .def_readonly("bytes_from_cache", &ReaderStats::bytes_from_cache)
      .def_readonly("is_http", &ReaderStats::is_http)
      .def_property_readonly("num_requests", Fetched(&FetchStats::num_requests))
      .def_property_readonly("num_retries", Fetched(&FetchStats::num_retries))
      .def_property_readonly("num_hedges", Fetched(&FetchStats::num_hedges))
      .def_property_readonly("num_hedges_won", Fetched(&FetchStats::num_hedges_won))
      .def_property_readonly("bytes_received", Fetched(&FetchStats::bytes_received))
      .def_property_readonly("bytes_wasted", Fetched(&FetchStats::bytes_wasted))
      .def_readonly("num_waits", &ReaderStats::num_waits)
      .def_readonly("num_complete", &ReaderStats::num_complete)
      .def_readonly("num_in_flight", &ReaderStats::num_in_flight)
      .def_readonly("held_bytes", &ReaderStats::held_bytes);
}

}  // namespace torchparquet
