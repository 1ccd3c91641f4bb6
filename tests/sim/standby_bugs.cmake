# Bugs that are planted into task/change_logs.cc: standby_bugs_test has one of them be there at a
# time, and says that the simulation finds it. Every line of the list is a name, the source, a text
# that it has just once, and what it becomes.
include(planted_bugs.cmake)

plant_into(standby_bugs answers_at_once task/change_logs.cc
           "return open != nullptr && open->logs->standbys"
           "return !PLANTED(answers_at_once) && open != nullptr && open->logs->standbys")
plant_into(standby_bugs believes_what_it_has_sent task/change_logs.cc
           "acknowledged = std::min(acknowledged, reader->applied);"
           "acknowledged = std::min(acknowledged, PLANTED(believes_what_it_has_sent)
                                                       ? reader->position.cut : reader->applied);")
plant_into(standby_bugs waits_for_the_cut_before task/change_logs.cc
           ".cut = open->log->cut_of_all(),"
           ".cut = open->log->cut_of_all() - (PLANTED(waits_for_the_cut_before) ? 1 : 0),")
plant_into(standby_bugs waits_for_the_silent task/change_logs.cc
           "if (!reader.is_in_sync || open.held.empty()) return false;"
           "if (PLANTED(waits_for_the_silent)) return false;
  if (!reader.is_in_sync || open.held.empty()) return false;")
plant_into(standby_bugs skips_a_cut_after_a_snapshot task/change_logs.cc
           "reader->position = reader->snapshot->position();"
           "reader->position = reader->snapshot->position();
  if (PLANTED(skips_a_cut_after_a_snapshot)) ++reader->position.cut;")
plant_into(standby_bugs waits_on_one_lane task/change_logs.cc
           "if (index == lane_->index()) {"
           "if (PLANTED(waits_on_one_lane) || index == lane_->index()) {")
plant_into(standby_bugs waits_for_one_of_several_lanes task/change_logs.cc
           "if (--waiting->missing == 0) waiting->then();"
           "if (--waiting->missing == 0 || PLANTED(waits_for_one_of_several_lanes)) {
      if (waiting->then) std::exchange(waiting->then, nullptr)();
    }")
