# Bugs that are planted into what moves variables, and keeps standbys: move_bugs_test has one of
# them be there at a time, and says that the simulation finds it. Every line of the list is a name,
# a source, a text that it has just once, and what it becomes.
include(planted_bugs.cmake)

# The last changes.
plant_into(move_bugs takes_without_the_last_cut task/task_copy.cc
           "return lane.marked >= mark; });"
           "return lane.marked >= mark || PLANTED(takes_without_the_last_cut); });")
plant_into(move_bugs answers_before_it_cuts task/change_logs.cc
           "    cut(open.get());
"
           "    if (!PLANTED(answers_before_it_cuts)) cut(open.get());
")
# What was applied.
plant_into(move_bugs forgets_what_was_applied task/given_variables.cc
           "*variable->changes_made() = std::move(one.made);"
           "if (!PLANTED(forgets_what_was_applied)) {
          *variable->changes_made() = std::move(one.made);
        }")
plant_into(move_bugs snapshots_without_what_was_applied resources/change_snapshot.cc
           "if (!of.changes_made().empty()) to->put_all_made(name, item->home, of.changes_made());
    return true;"
           "if (!of.changes_made().empty() && !PLANTED(snapshots_without_what_was_applied)) {
      to->put_all_made(name, item->home, of.changes_made());
    }
    return true;")
plant_into(move_bugs entries_without_what_was_applied resources/change_log.cc
           "} else if (!source->made.empty()) {"
           "} else if (!source->made.empty() && !PLANTED(entries_without_what_was_applied)) {")
# What was given up, or taken in part.
plant_into(move_bugs keeps_what_was_given_up task/variable_intake.cc
           "if (!is_committed_) task_->forget"
           "if (!is_committed_ && !PLANTED(keeps_what_was_given_up)) task_->forget")
plant_into(move_bugs forgets_by_name task/given_variables.cc
           "if (there != nullptr) container->manager.erase(name, there.get());"
           "if (PLANTED(forgets_by_name)) container->manager.erase(name);
    if (there != nullptr) container->manager.erase(name, there.get());")
plant_into(move_bugs forgets_what_was_committed task/variable_intake.cc
           "if (!is_committed_ && !PLANTED(keeps_what_was_given_up))"
           "if (PLANTED(forgets_what_was_committed) ||
      (!is_committed_ && !PLANTED(keeps_what_was_given_up)))")
plant_into(move_bugs uses_a_piece_before_the_last_one resources/replica.cc
           "if (head.kind != EntryKind::kLastPiece) return {};"
           "if (head.kind != EntryKind::kLastPiece &&
      !PLANTED(uses_a_piece_before_the_last_one)) {
    return {};
  }")
# Standbys.
plant_into(move_bugs answers_what_is_made_again exec/made_once.cc
           "so must this.
      found->note_made(closure, change);"
           "so must this.
      if (!PLANTED(answers_what_is_made_again)) found->note_made(closure, change);")
plant_into(move_bugs adopts_without_standbys task/given_variables.cc
           "when_kept(lane, *adoption->container(), [adoption] {});"
           "if (!PLANTED(adopts_without_standbys)) {
            when_kept(lane, *adoption->container(), [adoption] {});
          }")
# One owner.
plant_into(move_bugs keeps_the_old_copy resources/manager.cc
           "return resource == nullptr || &there == resource;"
           "return !PLANTED(keeps_the_old_copy) && (resource == nullptr || &there == resource);")
plant_into(move_bugs does_not_drain ../../tests/sim/mover.cc
           "if (!clients_->is_drained()) return;"
           "if (!clients_->is_drained() && !PLANTED(does_not_drain)) return;")
plant_into(move_bugs goes_on_before_all_is_taken ../../tests/sim/mover.cc
           "if (!all(&MoveSays::is_taken)) return;"
           "if (!all(&MoveSays::is_taken) && !PLANTED(goes_on_before_all_is_taken)) return;")
plant_into(move_bugs does_not_say_what_is_gone resources/change_log.cc
           "to->put_gone(source->name, source->home);"
           "if (!PLANTED(does_not_say_what_is_gone)) to->put_gone(source->name, source->home);")
