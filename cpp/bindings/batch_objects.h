#pragma once

#include <pybind11/numpy.h>
#include <pybind11/typing.h>

#include <cstdint>
#include <string>
#include <vector>

#include "batches/batch_ring.h"
#include "batches/dlpack.h"
#include "batches/jagged.h"
#include "batches/layout.h"
#include "tasks/reader_spec.h"

namespace torchparquet {

// A tensor that torch makes of a part of a slab: of the items from the byte `begin` on,
// up to `row_bytes` for each row after the byte `last`.
struct SlabPiece {
  dlpack::DataType dtype;
  int64_t begin = 0;
  int64_t last = 0;
  int64_t row_bytes = 0;
};

// Throws for a dtype that not every torch takes.
SlabPiece MakeSlabPiece(const std::string& dtype, int64_t begin, int64_t last,
                        int64_t row_bytes);

// Batches as Python receives them: the pieces of each slab (capsules of DLPack) or the
// token of a lent one, their number of rows and, for each field of variable length of the
// only batch, the offsets of all lists but the outermost, the values, and their mask
// (None if no mask is wanted).
using ItemsObject =
    pybind11::typing::Tuple<pybind11::typing::List<pybind11::array_t<int64_t>>,
                            pybind11::array, pybind11::typing::Optional<pybind11::array>>;
using RunObject =
    pybind11::typing::Tuple<pybind11::typing::List<pybind11::object>, pybind11::int_,
                            pybind11::typing::List<ItemsObject>>;

// Makes them of what a reader has taken. Capsules and arrays own their memory, which goes
// back to its pool when the last view of it dies.
class BatchObjects {
 public:
  explicit BatchObjects(const ReaderSpec& spec);

  // Of batches of as many rows; several have no field of variable length.
  RunObject Make(std::vector<BatchRing::TakeResult> taken,
                 const std::vector<SlabPiece>& pieces) const;

 private:
  // The type of the items of a field of variable length.
  struct ItemsForm {
    pybind11::dtype dtype;  // uint8 if not every torch takes the dtype from NumPy
    bool has_valid;
  };

  ItemsObject MakeItems(JaggedItems items, const ItemsForm& form) const;

  std::vector<ItemsForm> forms_;  // by field of variable length
  const pybind11::dtype offset_ = pybind11::dtype::of<int64_t>();
  const pybind11::dtype valid_ = pybind11::dtype::of<bool>();
};

}  // namespace torchparquet
