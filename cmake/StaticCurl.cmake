# Makes the target torchparquet_curl: libcurl as an archive, with the libraries that its build used.
# Its own CMake package knows those, and so does its pkg-config file; CMake's module knows only
# libcurl itself.
add_library(torchparquet_curl INTERFACE)
target_compile_definitions(torchparquet_curl INTERFACE TORCHPARQUET_STATIC_CURL)
set(CURL_USE_STATIC_LIBS ON)
set(OPENSSL_USE_STATIC_LIBS ON)
find_package(CURL 7.68 CONFIG QUIET)
if(CURL_FOUND)
  target_link_libraries(torchparquet_curl INTERFACE CURL::libcurl)
  # As packaging/static_curl.py leaves them.
  cmake_path(SET _licenses NORMALIZE "${CURL_DIR}/../../../licenses")
  if(TORCHPARQUET_BINDINGS AND EXISTS "${_licenses}")
    install(DIRECTORY "${_licenses}" DESTINATION torchparquet COMPONENT python)
  endif()
  return()
endif()
find_package(PkgConfig REQUIRED)
pkg_check_modules(_curl REQUIRED libcurl>=7.68)
target_link_directories(torchparquet_curl INTERFACE ${_curl_STATIC_LIBRARY_DIRS})
# The linker would prefer a shared libcurl beside the archive.
list(TRANSFORM _curl_STATIC_LIBRARIES REPLACE "^curl$" "-l:libcurl.a")
target_link_libraries(torchparquet_curl INTERFACE ${_curl_STATIC_LIBRARIES})
