# Bugs that are planted into task/change_logs.cc: standby_bugs_test has one of them be there at a
# time, and says that the simulation finds it. Every line of the list is a name, a text that the
# source has just once, and what it becomes, where PLANTED(name) is whether the bug is there. The
# object is linked before the library, whose own it replaces.
set(standby_source ${PROJECT_SOURCE_DIR}/src/sidereal/task/change_logs.cc)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${standby_source})
file(READ ${standby_source} standby_text)
set(standby_bugs)

include(planted_bugs.cmake)
function(plant_standby name text becomes)
  replace_once(standby_text "${text}" "${becomes}" standby_bugs.cmake ${name})
  set(standby_text "${standby_text}" PARENT_SCOPE)
  set(standby_bugs "${standby_bugs}STANDBY_BUG(${name})\n" PARENT_SCOPE)
endfunction()

plant_standby(answers_at_once
              "return open != nullptr && open->logs->standbys"
              "return !PLANTED(answers_at_once) && open != nullptr && open->logs->standbys")
plant_standby(believes_what_it_has_sent
              "acknowledged = std::min(acknowledged, reader->applied);"
              "acknowledged = std::min(acknowledged, PLANTED(believes_what_it_has_sent)
                                                       ? reader->position.cut : reader->applied);")
plant_standby(waits_for_the_cut_before ".cut = open->log->cut_of_all(),"
              ".cut = open->log->cut_of_all() - (PLANTED(waits_for_the_cut_before) ? 1 : 0),")
plant_standby(waits_for_the_silent "if (!reader.is_in_sync || open.held.empty()) return false;"
              "if (PLANTED(waits_for_the_silent)) return false;
  if (!reader.is_in_sync || open.held.empty()) return false;")
plant_standby(skips_a_cut_after_a_snapshot "reader->position = reader->snapshot->position();"
              "reader->position = reader->snapshot->position();
  if (PLANTED(skips_a_cut_after_a_snapshot)) ++reader->position.cut;")
plant_standby(waits_on_one_lane "if (index == lane_->index()) {"
              "if (PLANTED(waits_on_one_lane) || index == lane_->index()) {")
plant_standby(waits_for_one_of_several_lanes "if (--waiting->missing == 0) waiting->then();"
              "if (--waiting->missing == 0 || PLANTED(waits_for_one_of_several_lanes)) {
      if (waiting->then) std::exchange(waiting->then, nullptr)();
    }")

file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/standby_bugs.inc CONTENT "@standby_bugs@" @ONLY)
file(
  CONFIGURE
  OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/planted_change_logs.cc
  CONTENT [[// Generated: task/change_logs.cc with bugs that can be switched on.
#include "tests/sim/standby_bugs.h"
@standby_text@]]
  @ONLY)
