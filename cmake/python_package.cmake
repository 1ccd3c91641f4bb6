# The Python package in the build tree: build/<preset>/python/sidereal holds the extension and links
# to the .py files, so PYTHONPATH=build/<preset>/python works without installing.
if(NOT DEFINED SKBUILD)
  file(GLOB_RECURSE python_files RELATIVE ${PROJECT_SOURCE_DIR}/python CONFIGURE_DEPENDS
       ${PROJECT_SOURCE_DIR}/python/sidereal/*.py ${PROJECT_SOURCE_DIR}/python/sidereal/*.pyi
       ${PROJECT_SOURCE_DIR}/python/sidereal/py.typed)
  foreach(python_file IN LISTS python_files)
    set(link ${CMAKE_BINARY_DIR}/python/${python_file})
    get_filename_component(folder ${link} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python/${python_file} ${link} SYMBOLIC)
  endforeach()
  if(NOT Python_EXECUTABLE AND EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
    set(Python_EXECUTABLE ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  endif()
endif()

if(EXISTS ${PROJECT_SOURCE_DIR}/python/native/CMakeLists.txt AND TARGET sidereal_train)
  find_package(Python 3.10 COMPONENTS Interpreter Development.Module)
  if(Python_FOUND)
    # That of the interpreter, which may be another one than the time before in this folder.
    unset(nanobind_DIR CACHE)
    execute_process(
      COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
      OUTPUT_VARIABLE nanobind_ROOT
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    find_package(nanobind CONFIG QUIET)
  endif()
  if(nanobind_FOUND)
    add_subdirectory(python/native)
  elseif(DEFINED SKBUILD)
    if(NOT Python_FOUND)
      sidereal_missing("Python 3.10 or newer with its headers")
    endif()
    sidereal_missing(nanobind)
  else()
    message(STATUS "nanobind not found: the Python extension is not built (run ./dev setup)")
  endif()
endif()
