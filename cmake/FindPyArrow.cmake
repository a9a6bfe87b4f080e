# Finds the headers and libraries of pyarrow: of the package that the chosen Python
# interpreter imports, and of other releases, as unpacked wheels. The wheels ship neither
# CMake configuration nor unversioned links, so the versioned files are imported by their
# full path.
#
# Reads TORCHPARQUET_PYARROWS: a folder of unpacked wheels, each in a folder of its own; if it
# is empty, the interpreter's package is the only one.
# Defines PyArrow_RELEASES, such as 2500 and 2600, PyArrow_LIBRARY_DIR_2600, and the targets
# PyArrow::parquet_2600 and PyArrow::arrow_2600. PyArrow_RELEASE is the interpreter's
# release, for tests, or the newest one in the folder; its targets are PyArrow::parquet and
# PyArrow::arrow too.

function(_torchparquet_add_pyarrow package)
  # libarrow.so.2600; on macOS libarrow.2600.dylib.
  set(_suffix "\\.so\\.[0-9]+$")
  if(APPLE)
    set(_suffix "\\.[0-9]+\\.dylib$")
  endif()
  file(GLOB _arrow "${package}/libarrow.*")
  file(GLOB _parquet "${package}/libparquet.*")
  list(FILTER _arrow INCLUDE REGEX "${_suffix}")
  list(FILTER _parquet INCLUDE REGEX "${_suffix}")
  list(LENGTH _arrow _num_arrow)
  list(LENGTH _parquet _num_parquet)
  if(NOT _num_arrow EQUAL 1 OR NOT _num_parquet EQUAL 1)
    message(FATAL_ERROR "${package} is not the package of a pyarrow wheel")
  endif()
  get_filename_component(_release "${_arrow}" NAME)
  string(REGEX MATCH "[0-9]+" _release "${_release}")
  if(NOT TARGET PyArrow::arrow_${_release})
    torchparquet_keep_headers("${package}/include" "pyarrow_${_release}" _include)
    add_library(PyArrow::arrow_${_release} SHARED IMPORTED GLOBAL)
    set_target_properties(
      PyArrow::arrow_${_release} PROPERTIES IMPORTED_LOCATION "${_arrow}"
                                            INTERFACE_INCLUDE_DIRECTORIES "${_include}")
    add_library(PyArrow::parquet_${_release} SHARED IMPORTED GLOBAL)
    set_target_properties(
      PyArrow::parquet_${_release}
      PROPERTIES IMPORTED_LOCATION "${_parquet}"
                 INTERFACE_INCLUDE_DIRECTORIES "${_include}"
                 INTERFACE_LINK_LIBRARIES PyArrow::arrow_${_release})
  endif()
  set(PyArrow_LIBRARY_DIR_${_release} "${package}" PARENT_SCOPE)
  set(_pyarrow_release "${_release}" PARENT_SCOPE)
endfunction()

set(PyArrow_RELEASES "")
set(_pyarrow_status "not asked")
if(NOT CMAKE_CROSSCOMPILING)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c "import pyarrow; print(pyarrow.get_library_dirs()[0])"
    OUTPUT_VARIABLE _pyarrow_package
    ERROR_VARIABLE _pyarrow_error
    OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE _pyarrow_status)
endif()
if(_pyarrow_status EQUAL 0)
  _torchparquet_add_pyarrow("${_pyarrow_package}")
  set(PyArrow_RELEASE "${_pyarrow_release}")
  if(NOT TORCHPARQUET_PYARROWS)
    set(PyArrow_RELEASES "${PyArrow_RELEASE}")
  endif()
endif()
if(TORCHPARQUET_PYARROWS)
  file(GLOB _pyarrow_packages "${TORCHPARQUET_PYARROWS}/*/pyarrow")
  foreach(_package IN LISTS _pyarrow_packages)
    _torchparquet_add_pyarrow("${_package}")
    list(APPEND PyArrow_RELEASES "${_pyarrow_release}")
  endforeach()
endif()
# No interpreter of another processor runs here.
if(NOT PyArrow_RELEASE AND PyArrow_RELEASES)
  list(GET PyArrow_RELEASES -1 PyArrow_RELEASE)
endif()
if(PyArrow_RELEASE AND NOT TARGET PyArrow::parquet)
  add_library(PyArrow::parquet ALIAS PyArrow::parquet_${PyArrow_RELEASE})
  add_library(PyArrow::arrow ALIAS PyArrow::arrow_${PyArrow_RELEASE})
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  PyArrow
  REQUIRED_VARS PyArrow_RELEASES
  REASON_FAILURE_MESSAGE "pyarrow must be importable by ${Python_EXECUTABLE}. ${_pyarrow_error}")
