# Bugs that are planted into what decides which start of a task counts: membership_bugs_test has one
# of them be there at a time, and says that the simulation finds it. Every line of the list is a
# name, a source, a text that it has just once, and what it becomes.
include(planted_bugs.cmake)

# Voters.
plant_into(membership_bugs keeps_no_promise membership/voter.cc
           "state.until = now + promise_;"
           "state.until = now + (PLANTED(keeps_no_promise) ? promise_ / 2 : promise_);")
plant_into(membership_bugs votes_before_old_promises_end membership/voter.cc
           "quiet_until_(now + promise_ns)"
           "quiet_until_(PLANTED(votes_before_old_promises_end) ? now : now + promise_ns)")
plant_into(membership_bugs forgets_what_was_decided membership/voter.cc
           "for (Record& one : records) {"
           "for (Record& one : records) {
    if (PLANTED(forgets_what_was_decided)) break;")
plant_into(membership_bugs lets_the_deposed_come_back membership/voter.cc
           "if (ask.held != 0 && state"
           "if (!PLANTED(lets_the_deposed_come_back) && ask.held != 0 && state")
plant_into(membership_bugs takes_another_ones_end_for_its membership/voter.cc
           "ask.gone == state.life && ask.gone"
           "(ask.gone == state.life || PLANTED(takes_another_ones_end_for_its)) && ask.gone")
plant_into(membership_bugs gives_a_view_twice membership/voter.cc
           "(ask.view == state.view && !is_its && state.view != 0)"
           "(ask.view == state.view && !is_its && state.view != 0 && !PLANTED(gives_a_view_twice))")
plant_into(membership_bugs goes_back_to_an_earlier_view membership/voter.cc
           "!may || ask.view < state.view ||"
           "!may || (ask.view < state.view && !PLANTED(goes_back_to_an_earlier_view)) ||")
plant_into(membership_bugs keeps_votes_that_are_given_back membership/voter.cc
           "if (ask.gives_up) {"
           "if (ask.gives_up && PLANTED(keeps_votes_that_are_given_back)) {
    return Vote{.view = state.view};
  }
  if (ask.gives_up) {")
plant_into(membership_bugs takes_what_comes_late membership/voter.cc
           "if (is_its && ask.round < state.round)"
           "if (is_its && ask.round < state.round && !PLANTED(takes_what_comes_late))")
# Those that ask.
plant_into(membership_bugs counts_from_the_answer membership/lease.cc
           "std::max(until_, sent_ + options_.lease_ns);"
           "std::max(until_, (PLANTED(counts_from_the_answer) ? now : sent_) + options_.lease_ns);")
plant_into(membership_bugs needs_half_of_the_votes membership/lease.cc
           "granted_.size() == majority()"
           "granted_.size() == majority() - (PLANTED(needs_half_of_the_votes) ? 1 : 0)")
plant_into(membership_bugs takes_a_promise_for_a_vote membership/lease.cc
           "if (does_ == Does::kAsks) {
      does_"
           "if (does_ == Does::kAsks && !PLANTED(takes_a_promise_for_a_vote)) {
      does_")
plant_into(membership_bugs counts_late_answers membership/lease.cc
           "if (round != round_ || is_deposed_) return;"
           "if ((round != round_ && !PLANTED(counts_late_answers)) || is_deposed_) return;")
plant_into(membership_bugs asks_for_the_same_view_for_ever membership/lease.cc
           "if (does_ == Does::kAsks && view_ <= seen_) view_ = seen_ + 1;"
           "if (view_ == 0 || (does_ == Does::kAsks && view_ <= seen_ &&
                     !PLANTED(asks_for_the_same_view_for_ever))) {
    view_ = seen_ + 1;
  }")
