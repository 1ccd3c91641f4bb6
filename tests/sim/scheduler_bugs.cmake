# Bugs that are planted into coord/scheduler.cc, one at a time: coordinator_test says that the
# simulation finds each. Every line of the list is a name, a text that the source has just once, and
# what it becomes.
set(scheduler_source ${PROJECT_SOURCE_DIR}/src/sidereal/coord/scheduler.cc)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${scheduler_source})
file(READ ${scheduler_source} scheduler_text)
set(scheduler_bug_sources)
set(scheduler_bugs)

include(planted_bugs.cmake)
function(plant name text becomes)
  set(planted "${scheduler_text}")
  replace_once(planted "${text}" "${becomes}" scheduler_bugs.cmake ${name})
  set(bug_file ${CMAKE_CURRENT_BINARY_DIR}/scheduler_${name}.cc)
  file(
    CONFIGURE
    OUTPUT ${bug_file}
    CONTENT
      [[// Generated: coord/scheduler.cc with a planted bug.
#define Scheduler Scheduler_@name@
#define is_input_error is_input_error_@name@
#define is_ps_failure is_ps_failure_@name@
@planted@
#include "tests/sim/coordinator.h"
namespace sidereal::sim {
std::unique_ptr<SchedulerUnderTest> make_@name@(const coord::SchedulerOptions& options,
                                                coord::SchedulerHooks* hooks, int64_t now_ns) {
  return make_scheduler<coord::Scheduler>(options, hooks, now_ns);
}
}  // namespace sidereal::sim
]]
    @ONLY)
  set(scheduler_bug_sources ${scheduler_bug_sources} ${bug_file} PARENT_SCOPE)
  set(scheduler_bugs "${scheduler_bugs}SCHEDULER_BUG(${name})\n" PARENT_SCOPE)
endfunction()

plant(believes_earlier_lives
      "living(worker, life);\n  if (one == nullptr ||"
      "living(worker, workers_[static_cast<size_t>(worker)].life);\n  if (one == nullptr ||")
plant(retries_first "else {\n    queue_.push_back(id);" "else {\n    queue_.push_front(id);")
plant(retries_in_a_later_step "contributes) {\n    queue_.push_front(id);"
      "contributes) {\n    queue_.push_back(id);")
plant(keeps_resources_of_the_lost "resource.copies[static_cast<size_t>(worker)] = {};" "")
plant(takes_closures_while_joining "is_full() || joining_ > 0" "is_full()")
plant(says_nothing_of_room "if (was_full && !is_full()) hooks_->wake();" "")
plant(keeps_the_last_error "if (has_error()) return;\n  error_ = error;" "error_ = error;")
plant(raises_twice "std::exchange(error_, ps_failure_)" "error_")
plant(forgets_the_lost_ps "std::exchange(error_, ps_failure_)" "std::exchange(error_, Status())")
plant(does_not_wait_for_cancelled "return in_flight_ == 0 && steps_" "return steps_")
plant(retries_what_is_cancelled "if (closure.is_cancelled) return end(id, cancelled());" "")
plant(counts_one_failure_often "tries->empty() || began_ns >= tries->back()" "true")
plant(never_forgets_failures "now_ns_ - tries->front() > options_.failure_window_ns" "false")
plant(runs_one_too_many
      "worker.running.size() < static_cast"
      "worker.running.size() <= static_cast")
plant(lets_the_fast_run_away "!staleness_.may_begin(worker)" "false")
plant(forgets_who_waits "be_free(&ahead_of_step);\n  be_free(&ahead);"
      "be_free(&ahead_of_step);")
plant(forgets_who_waits_for_a_step "be_free(&ahead_of_step);\n  be_free(&ahead);"
      "be_free(&ahead);")
plant(waits_for_the_lost "  staleness_.lost(worker);\n" "")
plant(misses_nothing "    staleness_.ended(worker);\n" "    staleness_.lost(worker);\n")
plant(idles_after_building
      "  offer(worker);\n  dispatch();\n}\n\n// ---- What its"
      "  dispatch();\n}\n\n// ---- What its")
plant(keeps_what_is_released "    --resources_[resource].uses;\n    forget_if_unused(resource);"
      "    --resources_[resource].uses;")
plant(loses_count
      "    if (!closures_[id].is_own) --in_flight_;\n    leave_step(closures_[id]);"
      "    leave_step(closures_[id]);")
plant(leaves_the_queue
      "for (const ClosureId id : std::exchange(queue_, {})) end(id, cancelled());"
      "")
plant(misses_a_fast_restart
      "    lose(worker);\n  }\n  found.is_found = true;"
      "  }\n  found.is_found = true;")
plant(names_the_missing_once
      "reported_ns_ = now_ns;\n  hooks_->missing"
      "reported_ns_ = INT64_MAX / 2;\n  hooks_->missing")
plant(ends_in_silence "if (all_ended()) hooks_->wake();" "")
plant(retries_for_ever "++*cancels < kCancelsMax" "true")
plant(begins_at_once "now_ns_ >= worker.starts_ns" "true")
plant(runs_before_it_is_built "worker.missing == 0 && " "")
plant(makes_failed_resources_do "if (copy.made != Made::kFailed) continue;" "continue;")
plant(begins_what_is_held "return !is_held_ && worker" "return worker")
plant(builds_what_is_held "if (!one.is_found || is_held_) return;" "if (!one.is_found) return;")
plant(never_goes_on "is_held_ = false;\n  for" "for")
plant(holds_in_silence "if (is_held_ && is_idle()) hooks_->wake();" "")
plant(forgets_what_is_built
      "one.running.empty() && one.missing == 0; });"
      "one.running.empty(); });")
plant(gives_up_on_a_worker "origin.task == worker ? Verdict::kWorkerLost : Verdict::kAgain"
      "Verdict::kFailed")
plant(begins_while_a_step_ends
      "contributes && !steps_.may_begin()"
      "contributes && steps_.must_forget()")
plant(has_spares_of_one_worker "contributes && !steps_.may_begin_on(worker)" "false")
plant(has_values_before_the_step_ends
      "steps_.ends(id);\n"
      "steps_.ends(id);\n  hooks_->closure_ended(id, {});\n")
plant(ends_steps_early
      "steps_.is_complete() || lacks_closures()"
      "steps_.is_complete() || steps_.is_resting()")
plant(waits_for_closures_that_do_not_come "queue_.empty() && (joining_ > 0 ||" "false && (")
plant(keeps_the_place_of_the_lost "if (is_of_step(closure)) steps_.fails();" "")
plant(uses_what_was_given_up "    steps_.spoil();\n    if (verdict" "    if (verdict")
plant(believes_in_a_lost_step "std::vector<ClosureId> closures = give_step_up();"
      "std::vector<ClosureId> closures;")
plant(takes_void_closures_for_late "outcome.status.ok() && known.is_void" "false")
plant(cancels_without_waiting_for_the_update
      "in_flight_ == 0 && steps_.does() != Steps::Does::kUpdates"
      "in_flight_ == 0")
plant(leaves_the_step_when_all_is_cancelled
      "for (const ClosureId id : give_step_up()) end(id, cancelled());"
      "")
plant(holds_in_the_middle_of_a_step "  is_held_ = true;\n  end_step_if_complete();"
      "  is_held_ = true;")

file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/scheduler_bugs.inc CONTENT "@scheduler_bugs@"
     @ONLY)
add_library(sidereal_sim_bugs STATIC ${scheduler_bug_sources})
sidereal_target_defaults(sidereal_sim_bugs)
# A planted bug may leave something unused.
target_compile_options(sidereal_sim_bugs PRIVATE -w)
set_target_properties(sidereal_sim_bugs PROPERTIES CXX_CLANG_TIDY "")
target_include_directories(sidereal_sim_bugs PUBLIC ${CMAKE_CURRENT_BINARY_DIR})
target_link_libraries(sidereal_sim_bugs PUBLIC sidereal_sim_parts)
