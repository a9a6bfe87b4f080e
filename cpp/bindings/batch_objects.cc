#include "bindings/batch_objects.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "kernels/values/conversion.h"

namespace py = pybind11;

namespace torchparquet {
namespace {

// The memory at `data`, as an array that ends the ownership when its last view dies.
template <typename Owner>
py::array ToArray(Owner owner, std::span<const uint8_t> bytes, const py::dtype& dtype) {
  auto kept = std::make_unique<Owner>(std::move(owner));
  const py::capsule capsule(kept.get(),
                            [](void* pointer) { delete static_cast<Owner*>(pointer); });
  static_cast<void>(kept.release());
  return {dtype, std::ssize(bytes) / dtype.itemsize(), bytes.data(), capsule};
}

py::array ToArray(SinkPool::Lease lease, const py::dtype& dtype) {
  const std::span<const uint8_t> bytes = lease->bytes();
  return ToArray(std::move(lease), bytes, dtype);
}

std::string ArrayDtype(kernels::Dtype dtype) {
  switch (dtype) {
    case kernels::Dtype::kBFloat16:
    case kernels::Dtype::kUInt16:
    case kernels::Dtype::kUInt32:
    case kernels::Dtype::kUInt64:
      return "uint8";
    default:
      return std::string(kernels::DtypeName(dtype));
  }
}

}  // namespace

BatchObjects::BatchObjects(const ReaderSpec& spec) {
  for (size_t field = 0; field < spec.fields.size(); ++field) {
    if (spec.fields[field].num_offsets == 0) continue;
    const auto column =
        std::ranges::find(spec.columns, static_cast<int64_t>(field), &ColumnSpec::field);
    const bool has_column = column != spec.columns.end();
    forms_.push_back({py::dtype(has_column ? ArrayDtype(column->request.dtype) : "uint8"),
                      spec.fields[field].has_item_valid});
  }
}

BatchMemoryObject BatchObjects::MakeMemory(BatchMemory memory, int64_t slab_bytes) const {
  if (memory.lent_token >= 0) return py::int_(memory.lent_token);
  const std::span<const uint8_t> bytes(memory.slab.data(),
                                       static_cast<size_t>(slab_bytes));
  return ToArray(std::move(memory.slab), bytes, byte_);
}

ItemsObject BatchObjects::MakeItems(JaggedItems items, const ItemsForm& form) const {
  py::list starts;
  for (SinkPool::Lease& level : items.starts) {
    starts.append(ToArray(std::move(level), offset_));
  }
  py::object valid = py::none();
  if (form.has_valid) valid = ToArray(std::move(items.valid), valid_);
  return py::make_tuple(std::move(starts), ToArray(std::move(items.values), form.dtype),
                        std::move(valid));
}

BatchObject BatchObjects::Make(BatchRing::TakeResult taken, int64_t slab_bytes) const {
  py::list items;
  for (size_t i = 0; i < taken.items.size(); ++i) {
    items.append(MakeItems(std::move(taken.items[i]), forms_[i]));
  }
  return py::make_tuple(MakeMemory(std::move(taken.memory), slab_bytes), taken.num_rows,
                        std::move(items));
}

}  // namespace torchparquet
