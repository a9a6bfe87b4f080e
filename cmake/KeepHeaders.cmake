# Copies the headers below `folder` into the build directory and sets `result` to the copy. Each
# isolated build of pip unpacks its requirements into another folder, with new times. Compiled
# from copies that change only with their content, nothing is compiled anew for that.
function(torchparquet_keep_headers folder name result)
  set(_kept "${PROJECT_BINARY_DIR}/headers/${name}")
  file(GLOB_RECURSE _headers RELATIVE "${folder}" "${folder}/*.h" "${folder}/*.hpp")
  foreach(_header IN LISTS _headers)
    cmake_path(GET _header PARENT_PATH _parent)
    file(MAKE_DIRECTORY "${_kept}/${_parent}")
    file(COPY_FILE "${folder}/${_header}" "${_kept}/${_header}" ONLY_IF_DIFFERENT)
  endforeach()
  set(${result} "${_kept}" PARENT_SCOPE)
endfunction()
