#include "bindings/data_files.h"

#include <pybind11/stl.h>

#include <optional>
#include <string>

#include "bindings/file_keys.h"
#include "bindings/share_arrays.h"

namespace py = pybind11;

namespace torchparquet {
namespace {

std::shared_ptr<DataFiles> MakeDataFiles(
    const std::vector<std::string>& paths, const Int64Array& num_bytes,
    const Int64Array& mtime_ns, const Int64Array& inode,
    const std::vector<py::buffer>& contents,
    const std::optional<std::shared_ptr<Decryption>>& decryption) {
  std::vector<PlannedFile> planned;
  planned.reserve(paths.size());
  for (size_t i = 0; i < paths.size(); ++i) {
    const auto index = static_cast<py::ssize_t>(i);
    planned.push_back({.path = paths[i],
                       .identity = {.num_bytes = num_bytes.at(index),
                                    .mtime_ns = mtime_ns.at(index),
                                    .inode = inode.at(index)}});
  }
  HeldContents held(contents);
  held.AddTo(&planned);
  AddKeys(decryption, &planned);
  return std::make_shared<DataFiles>(std::move(planned), std::move(held));
}

}  // namespace

void BindDataFiles(py::module_& m) {
  py::class_<DataFiles, std::shared_ptr<DataFiles>>(m, "DataFiles")
      .def(py::init(&MakeDataFiles), py::kw_only(), py::arg("paths"),
           py::arg("num_bytes"), py::arg("mtime_ns"), py::arg("inode"),
           py::arg("contents"), py::arg("decryption"));
}

}  // namespace torchparquet
