#include <pybind11/pybind11.h>

#include <exception>
#include <utility>

#include "base/errors.h"
#include "bindings/module.h"

namespace py = pybind11;

namespace torchparquet {
namespace {

py::object ExceptionClass(ErrorKind kind) {
  const auto ours = [](const char* name) {
    return py::object(py::module_::import("torchparquet.errors").attr(name));
  };
  const auto builtin = [](PyObject* type) {
    return py::reinterpret_borrow<py::object>(type);
  };
  switch (kind) {
    case ErrorKind::kCorruptFile:
      return ours("CorruptFileError");
    case ErrorKind::kChanged:
      return ours("FileChangedError");
    case ErrorKind::kEncrypted:
      return ours("EncryptedFileError");
    case ErrorKind::kNullValue:
      return ours("NullValueError");
    case ErrorKind::kCast:
      return ours("CastError");
    case ErrorKind::kListLength:
      return ours("ListLengthError");
    case ErrorKind::kFileNotFound:
      return builtin(PyExc_FileNotFoundError);
    case ErrorKind::kIo:
      return builtin(PyExc_OSError);
    case ErrorKind::kInvalidArgument:
      return builtin(PyExc_ValueError);
    case ErrorKind::kOutOfMemory:
    case ErrorKind::kValuesTooLarge:
      return builtin(PyExc_MemoryError);
    case ErrorKind::kNotSupported:
      return builtin(PyExc_NotImplementedError);
    case ErrorKind::kStopped:
    case ErrorKind::kInternal:
      break;
  }
  return builtin(PyExc_RuntimeError);
}

}  // namespace

void RegisterExceptions() {
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(std::move(pointer));
    } catch (const Error& error) {
      PyErr_SetString(ExceptionClass(error.kind()).ptr(), error.what());
    }
  });
}

}  // namespace torchparquet
