# The package for C++ users: `cmake --install build/PRESET --prefix P` puts headers, libraries, the
# program `sidereal` and CMake files into P, for find_package(Sidereal) (docs/guide/cpp.md).
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# What a program includes. With what these include, they are all that is installed of our headers
# (install_headers.cmake).
set(SIDEREAL_PUBLIC_HEADERS
    app/cluster.h
    autodiff/autodiff.h
    base/log.h
    base/status.h
    cluster/cluster_spec.h
    data/data_spec.h
    ir/builder.h
    ir/text.h
    ops/control.h
    ops/ops.h
    master/placement.h
    app/server.h
    service/session.h
    service/status_client.h
    tensor/strings.h
    tensor/tensor.h
    train/layers.h
    train/model.h
    train/models.h
    train/optimizers.h
    train/trainer.h)

# The libraries of those modules, and all that they use of ours.
set(todo ${SIDEREAL_PUBLIC_HEADERS})
list(TRANSFORM todo REPLACE "^([a-z_]+)/.*" "sidereal_\\1")
list(REMOVE_DUPLICATES todo)
set(roots ${todo})
set(libraries "")
while(todo)
  list(POP_FRONT todo library)
  if(NOT TARGET ${library})
    message(STATUS "${library} is not configured: no C++ package is installed")
    return()
  endif()
  list(APPEND libraries ${library})
  get_target_property(links ${library} INTERFACE_LINK_LIBRARIES)
  foreach(link IN LISTS links)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" link "${link}")
    if(link MATCHES "^sidereal_" AND NOT link IN_LIST libraries AND NOT link IN_LIST todo)
      list(APPEND todo ${link})
    endif()
  endforeach()
endwhile()
foreach(library IN LISTS libraries)
  string(REGEX REPLACE "^sidereal_" "" name ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name})
endforeach()

add_library(sidereal_all INTERFACE)
target_link_libraries(sidereal_all INTERFACE ${roots})
target_compile_features(sidereal_all INTERFACE cxx_std_20)
set_target_properties(sidereal_all PROPERTIES EXPORT_NAME sidereal)

set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/Sidereal)
install(
  TARGETS ${libraries} sidereal_all
  EXPORT Sidereal
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/sidereal
  INCLUDES
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT Sidereal FILE SiderealTargets.cmake NAMESPACE Sidereal:: DESTINATION ${folder})
install(CODE "set(SIDEREAL_SOURCE \"${PROJECT_SOURCE_DIR}/src/sidereal\")
set(SIDEREAL_PUBLIC_HEADERS \"${SIDEREAL_PUBLIC_HEADERS}\")
set(SIDEREAL_INCLUDE \"${CMAKE_INSTALL_INCLUDEDIR}/sidereal\")")
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/install_headers.cmake)
if(TARGET sidereal)
  install(TARGETS sidereal RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/SiderealConfig.cmake.in ${CMAKE_BINARY_DIR}/SiderealConfig.cmake
  INSTALL_DESTINATION ${folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/SiderealConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/SiderealConfig.cmake
              ${CMAKE_BINARY_DIR}/SiderealConfigVersion.cmake DESTINATION ${folder})
install(FILES ${CMAKE_CURRENT_LIST_DIR}/dependencies.cmake DESTINATION ${folder}
        RENAME SiderealDependencies.cmake)
