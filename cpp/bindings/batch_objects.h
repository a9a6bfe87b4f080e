#pragma once

#include <pybind11/numpy.h>
#include <pybind11/typing.h>

#include <cstdint>
#include <vector>

#include "batches/batch_ring.h"
#include "batches/jagged.h"
#include "tasks/reader_spec.h"

namespace torchparquet {

// A batch as Python receives it: its memory (a uint8 array, or the token of a lent slab),
// its number of rows, and for each field of variable length the offsets of all lists but
// the outermost, the values, and their mask (None if no mask is wanted).
using BatchMemoryObject =
    pybind11::typing::Union<pybind11::array_t<uint8_t>, pybind11::int_>;
using ItemsObject =
    pybind11::typing::Tuple<pybind11::typing::List<pybind11::array_t<int64_t>>,
                            pybind11::array, pybind11::typing::Optional<pybind11::array>>;
using BatchObject = pybind11::typing::Tuple<BatchMemoryObject, pybind11::int_,
                                            pybind11::typing::List<ItemsObject>>;

// Makes them of what a reader has taken. Arrays own their memory, which goes back to its
// pool when the last view of it dies.
class BatchObjects {
 public:
  explicit BatchObjects(const ReaderSpec& spec);

  BatchObject Make(BatchRing::TakeResult taken, int64_t slab_bytes) const;

 private:
  // The type of the items of a field of variable length.
  struct ItemsForm {
    pybind11::dtype dtype;  // uint8 if not every torch takes the dtype from NumPy
    bool has_valid;
  };

  BatchMemoryObject MakeMemory(BatchMemory memory, int64_t slab_bytes) const;
  ItemsObject MakeItems(JaggedItems items, const ItemsForm& form) const;

  std::vector<ItemsForm> forms_;  // by field of variable length
  const pybind11::dtype byte_ = pybind11::dtype::of<uint8_t>();
  const pybind11::dtype offset_ = pybind11::dtype::of<int64_t>();
  const pybind11::dtype valid_ = pybind11::dtype::of<bool>();
};

}  // namespace torchparquet
