# Finds the Arrow and Parquet libraries inside the pyarrow wheel of the chosen
# Python interpreter. The wheel ships neither CMake configuration nor
# unversioned links, so the versioned files are imported by their full path.
#
# Defines PyArrow::arrow, PyArrow::parquet, PyArrow_VERSION, PyArrow_LIBRARY_DIR,
# PyArrow_PXD_DIR.

execute_process(
  COMMAND "${Python_EXECUTABLE}" -c
          "import pyarrow as a; print(a.__version__, a.get_include(), a.get_library_dirs()[0], sep=';')"
  OUTPUT_VARIABLE _pyarrow_facts
  ERROR_VARIABLE _pyarrow_error
  OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE _pyarrow_status)
if(_pyarrow_status EQUAL 0)
  list(GET _pyarrow_facts 0 PyArrow_VERSION)
  list(GET _pyarrow_facts 1 PyArrow_INCLUDE_DIR)
  list(GET _pyarrow_facts 2 PyArrow_LIBRARY_DIR)
  # Cython looks for the declarations of a module below the directory of its package.
  cmake_path(GET PyArrow_LIBRARY_DIR PARENT_PATH PyArrow_PXD_DIR)
  string(REGEX MATCH "^([0-9]+)\\.([0-9]+)" _pyarrow_minor "${PyArrow_VERSION}")
  set(_pyarrow_soversion "${CMAKE_MATCH_1}0${CMAKE_MATCH_2}")
  find_file(PyArrow_ARROW_LIBRARY "libarrow.so.${_pyarrow_soversion}"
            PATHS "${PyArrow_LIBRARY_DIR}" NO_DEFAULT_PATH NO_CACHE)
  find_file(PyArrow_PARQUET_LIBRARY "libparquet.so.${_pyarrow_soversion}"
            PATHS "${PyArrow_LIBRARY_DIR}" NO_DEFAULT_PATH NO_CACHE)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  PyArrow
  REQUIRED_VARS PyArrow_ARROW_LIBRARY PyArrow_PARQUET_LIBRARY PyArrow_INCLUDE_DIR
  VERSION_VAR PyArrow_VERSION
  REASON_FAILURE_MESSAGE "pyarrow must be importable by ${Python_EXECUTABLE}. ${_pyarrow_error}")

if(PyArrow_FOUND AND NOT TARGET PyArrow::arrow)
  add_library(PyArrow::arrow SHARED IMPORTED)
  set_target_properties(
    PyArrow::arrow PROPERTIES IMPORTED_LOCATION "${PyArrow_ARROW_LIBRARY}"
                              INTERFACE_INCLUDE_DIRECTORIES "${PyArrow_INCLUDE_DIR}")
  add_library(PyArrow::parquet SHARED IMPORTED)
  set_target_properties(
    PyArrow::parquet PROPERTIES IMPORTED_LOCATION "${PyArrow_PARQUET_LIBRARY}"
                                INTERFACE_INCLUDE_DIRECTORIES "${PyArrow_INCLUDE_DIR}"
                                INTERFACE_LINK_LIBRARIES PyArrow::arrow)
endif()
