#include "bindings/data_files.h"

#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/module.h"
#include "bindings/remote_store.h"
#include "bridge/loaded_library.h"

namespace py = pybind11;

namespace torchparquet {
namespace {

// pyarrow's FileDecryptionProperties as Cython lays it out, by the one field that
// pyarrow/_parquet.pxd declares in every release that a bridge fits.
struct PyFileDecryptionProperties {
  PyObject ob_base;  // as PyObject_HEAD, with no stray semicolon
  const void* functions;
  std::shared_ptr<void> properties;
};

// Throws RuntimeError if the class has another size, or no functions in C.
py::type PropertiesClass() {
  py::type found =
      py::module_::import("pyarrow._parquet").attr("FileDecryptionProperties");
  const auto* type = reinterpret_cast<const PyTypeObject*>(found.ptr());
  if (type->tp_basicsize != sizeof(PyFileDecryptionProperties) ||
      !py::hasattr(found, "__pyx_vtable__")) {
    throw std::runtime_error(
        "pyarrow's FileDecryptionProperties has another layout than torchparquet knows");
  }
  return found;
}

// The address of the shared pointer to the properties, as the bridge takes it.
const void* PropertiesIn(const py::object& given, const py::type& properties_class) {
  if (given.is_none()) return nullptr;
  if (!py::isinstance(given, properties_class)) {
    throw py::type_error("decryption properties must be pyarrow's");
  }
  return &reinterpret_cast<const PyFileDecryptionProperties*>(given.ptr())->properties;
}

std::shared_ptr<KeyRing> RememberKeys(const std::vector<py::object>& of_files) {
  const py::type properties_class = PropertiesClass();
  std::vector<const void*> properties;
  properties.reserve(of_files.size());
  for (const py::object& given : of_files) {
    properties.push_back(PropertiesIn(given, properties_class));
  }
  std::shared_ptr<KeyRing> keys;
  Check(Arrow().RememberKeys(properties, &keys));
  return keys;
}

std::shared_ptr<DataFiles> MakeDataFiles(
    const std::vector<std::string>& paths, const Int64Array& num_bytes,
    const Int64Array& mtime_ns, const Int64Array& inode,
    const std::vector<py::buffer>& contents,
    const std::optional<std::shared_ptr<KeyRing>>& decryption,
    const std::optional<std::shared_ptr<RemoteStore>>& remote) {
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
  AddContents(held, &planned);
  AddKeys(decryption, &planned);
  std::vector<std::shared_ptr<const ParsedFooter>> footers;
  if (remote) {
    (*remote)->AddTo(&planned);
    footers = (*remote)->footers();
  }
  return std::make_shared<DataFiles>(std::move(planned), std::move(held),
                                     std::move(footers));
}

}  // namespace

void AddContents(const HeldContents& contents, std::vector<PlannedFile>* files) {
  if (contents.size() == 0) return;
  if (contents.size() != files->size()) {
    throw py::value_error("files and their contents differ in number");
  }
  for (size_t i = 0; i < files->size(); ++i) (*files)[i].memory = contents[i];
}

void AddKeys(const std::optional<std::shared_ptr<KeyRing>>& decryption,
             std::vector<PlannedFile>* files) {
  if (!decryption) return;
  if ((*decryption)->num_files() != files->size()) {
    throw py::value_error("files and their keys differ in number");
  }
  for (size_t i = 0; i < files->size(); ++i) {
    (*files)[i].decryption = (*decryption)->of_file(i);
  }
}

void BindDecryption(py::module_& m) {
  py::class_<KeyRing, std::shared_ptr<KeyRing>>(m, "Decryption")
      .def(py::init(&RememberKeys), py::arg("of_files"));
}

void BindDataFiles(py::module_& m) {
  py::class_<DataFiles, std::shared_ptr<DataFiles>>(m, "DataFiles")
      .def(py::init(&MakeDataFiles), py::kw_only(), py::arg("paths"),
           py::arg("num_bytes"), py::arg("mtime_ns"), py::arg("inode"),
           py::arg("contents"), py::arg("decryption"), py::arg("remote") = py::none());
}

}  // namespace torchparquet
