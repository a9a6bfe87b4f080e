#include "reader/epoch_ledger.h"

#include <pybind11/critical_section.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "bindings/module.h"

namespace py = pybind11;

namespace torchparquet {
namespace {

constexpr size_t kLedgerBytes = EpochLedger::kNumWords * sizeof(int64_t);

// The words of a ledger in the memory of a file, shared with all who map it. Python's
// mmap would keep a second descriptor open for each data set.
py::array_t<int64_t> MapSharedWords(int descriptor) {
  void* words =
      mmap(nullptr, kLedgerBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (words == MAP_FAILED) {
    PyErr_SetFromErrno(PyExc_OSError);
    throw py::error_already_set();
  }
  const py::capsule owner(words, [](void* mapped) { munmap(mapped, kLedgerBytes); });
  return py::array_t<int64_t>(EpochLedger::kNumWords, static_cast<int64_t*>(words),
                              owner);
}

}  // namespace

void BindEpochLedger(py::module_& m) {
  // The array must be int64 and writable as it is: a converted copy would not be shared.
  using Words = py::array_t<int64_t, py::array::c_style>;
  const auto ledger = [](Words& words) {
    return EpochLedger({words.mutable_data(), static_cast<size_t>(words.size())});
  };
  m.attr("EPOCH_LEDGER_WORDS") = py::int_(EpochLedger::kNumWords);
  m.def("map_shared_words", &MapSharedWords, py::arg("descriptor"));
  m.def(
      "begin_iteration",
      [ledger](Words words, int64_t key, int64_t worker) {
        // One worker's threads take turns: of two that present one key, one moves on.
        const py::scoped_critical_section turn(words);
        return ledger(words).Begin(key, worker);
      },
      py::arg("words").noconvert(), py::arg("key"), py::arg("worker"));
  m.def(
      "num_iterations", [ledger](Words words) { return ledger(words).NumIterations(); },
      py::arg("words").noconvert());
  m.def(
      "epoch_of",
      [ledger](Words words, int64_t iteration) {
        return ledger(words).EpochOf(iteration);
      },
      py::arg("words").noconvert(), py::arg("iteration"));
  m.def(
      "set_epoch_of",
      [ledger](Words words, int64_t iteration, int64_t epoch) {
        ledger(words).SetEpochOf(iteration, epoch);
      },
      py::arg("words").noconvert(), py::arg("iteration"), py::arg("epoch"));
}

}  // namespace torchparquet
