#include <pybind11/stl.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/batch_objects.h"
#include "bindings/module.h"
#include "bindings/without_gil.h"
#include "pages/page_codec.h"
#include "reader/parallel_reader.h"

namespace py = pybind11;

namespace torchparquet {
namespace {

// A ParallelReader for Python: waits without the GIL, lets signals through.
class BatchReader {
 public:
  BatchReader(ReaderSpec spec, ReaderMemory memory)
      : objects_(spec),
        reader_(std::make_unique<ParallelReader>(std::move(spec), std::move(memory))) {}

  ~BatchReader() {
    // Threads are joined here; they never ask for the GIL, so holding it is safe.
    reader_.reset();
  }

  // At least one batch, and up to `max_batches` if more are ready.
  py::typing::Optional<RunObject> Next(int64_t max_batches,
                                       const std::vector<SlabPiece>& pieces) {
    constexpr std::chrono::milliseconds kSlice{100};
    BatchRing::TakeStatus status = BatchRing::TakeStatus::kTimedOut;
    while (true) {
      auto taken = WithoutGil([&] {
        std::vector<BatchRing::TakeResult> run;
        BatchRing::TakeResult first = reader_->Next(kSlice);
        status = first.status;
        if (status != BatchRing::TakeStatus::kTaken) return run;
        if (max_batches > 1) run = reader_->NextReady(first.num_rows, max_batches - 1);
        run.insert(run.begin(), std::move(first));
        return run;
      });
      switch (status) {
        case BatchRing::TakeStatus::kEnded:
          return py::none();
        case BatchRing::TakeStatus::kTaken:
          return objects_.Make(std::move(taken), pieces);
        case BatchRing::TakeStatus::kTimedOut:
          if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      }
    }
  }

  void Lend(uintptr_t data, int64_t token) {
    reader_->Lend(reinterpret_cast<uint8_t*>(data), token);  // an address from torch
  }

  void Announce(const std::vector<Share>& shares) {
    WithoutGil([&] { reader_->Announce(shares); });
  }

  void Claim(int64_t number, int64_t position) {
    WithoutGil([&] { reader_->Claim(number, position); });
  }

  void EndClaims(bool drops_last) {
    WithoutGil([&] { reader_->EndClaims(drops_last); });
  }

  // Lets signals through, since reads that are under way may take long.
  void Stop() {
    while (!StopWithin(0.1)) {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
  }

  bool StopWithin(double seconds) {
    const auto timeout = std::chrono::duration<double>(seconds);
    return WithoutGil([&] {
      return reader_->StopWithin(
          std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
    });
  }

  const ParallelReader& reader() const { return *reader_; }

 private:
  const BatchObjects objects_;
  std::unique_ptr<ParallelReader> reader_;
};

// The result of a function of the reader.
template <auto kFunction>
auto Told(const BatchReader& reader) {
  return (reader.reader().*kFunction)();
}

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

// Adds what a reader tells of its work.
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

}  // namespace

void BindReader(py::module_& m) {
  py::class_<ReaderMemory>(m, "ReaderMemory").def(py::init<>());
  BindStats(m);
  py::class_<FieldPlace>(m, "FieldPlace")
      .def_readonly("values_offset", &FieldPlace::values_offset)
      .def_readonly("valid_offset", &FieldPlace::valid_offset);
  py::class_<SlabPiece>(m, "SlabPiece")
      .def(py::init(&MakeSlabPiece), py::kw_only(), py::arg("dtype"), py::arg("begin"),
           py::arg("last"), py::arg("row_bytes"));
  py::class_<BatchReader>(m, "BatchReader")
      .def(py::init([](const ReaderParts& parts, ReaderMemory memory) {
             return std::make_unique<BatchReader>(ReaderSpec(parts), std::move(memory));
           }),
           py::kw_only(), py::arg("parts"), py::arg("memory"))
      .def("next", &BatchReader::Next, py::arg("max_batches"), py::arg("pieces"))
      .def_property_readonly("next_is_ready", &Told<&ParallelReader::next_is_ready>)
      .def("lend", &BatchReader::Lend, py::arg("data"), py::arg("token"))
      .def_property_readonly("has_asked_for_all",
                             &Told<&ParallelReader::has_asked_for_all>)
      .def("announce", &BatchReader::Announce, py::arg("shares"))
      .def_property_readonly("wants_claim", &Told<&ParallelReader::wants_claim>)
      .def_property_readonly("num_claims", &Told<&ParallelReader::num_claims>)
      .def("claim", &BatchReader::Claim, py::arg("number"), py::arg("position"))
      .def("end_claims", &BatchReader::EndClaims, py::arg("drops_last"))
      .def("stop", &BatchReader::Stop)
      .def("stop_within", &BatchReader::StopWithin, py::arg("seconds"))
      .def_property_readonly(
          "slab_bytes",
          [](const BatchReader& r) { return r.reader().layout().slab_bytes; })
      .def_property_readonly(
          "fields", [](const BatchReader& r) { return r.reader().layout().fields; })
      .def_property_readonly("num_batches", &Told<&ParallelReader::num_batches>)
      .def_property_readonly("max_slabs", &Told<&ParallelReader::max_slabs>)
      .def_property_readonly("memory", &Told<&ParallelReader::memory>)
      .def_property_readonly("num_taken", &Told<&ParallelReader::num_taken>)
      .def(
          "stats",
          [](const BatchReader& r, int64_t num_unused) {
            return r.reader().stats(num_unused);
          },
          py::arg("num_unused"));
}

}  // namespace torchparquet
