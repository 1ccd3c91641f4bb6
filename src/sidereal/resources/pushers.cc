#include "sidereal/resources/pushers.h"

#include <array>
#include <mutex>
#include <utility>

namespace sidereal::resources {

struct Pushers::State {
  struct Place {
    std::string name;
    std::weak_ptr<const Pusher> held;
    bool is_gone = false;  ///< Nobody holds it; what was counted with it is there yet.
  };
  mutable std::mutex mutex;
  std::array<Place, kMax + 1> places;  ///< By number. Those without a name are free.
};

Pushers::Pushers() : state_(std::make_shared<State>()) {}

std::shared_ptr<const Pushers::Pusher> Pushers::enter(const std::string& name) {
  const auto others = [] { return std::shared_ptr<const Pusher>(new Pusher(kOthers)); };
  if (name.empty()) return others();
  const std::lock_guard lock(state_->mutex);
  State::Place* unused = nullptr;
  for (size_t i = kOthers + 1; i < state_->places.size(); ++i) {
    State::Place& place = state_->places[i];
    if (place.name.empty()) {
      if (unused == nullptr) unused = &place;
    } else if (place.name == name) {
      if (auto held = place.held.lock()) return held;
    }
  }
  if (unused == nullptr) return others();
  const auto number = static_cast<int>(unused - state_->places.data());
  const auto leave = [state = state_](const Pusher* pusher) mutable {
    const auto left = static_cast<size_t>(pusher->number());
    delete pusher;
    // Moved away, as the state knows this function by a weak pointer for longer.
    const std::shared_ptr<State> there = std::move(state);
    const std::lock_guard lock_there(there->mutex);
    there->places[left].is_gone = true;
  };
  std::shared_ptr<const Pusher> out(new Pusher(number), leave);
  *unused = {.name = name, .held = out};
  return out;
}

std::vector<int> Pushers::gone() const {
  std::vector<int> out;
  const std::lock_guard lock(state_->mutex);
  for (size_t i = 0; i < state_->places.size(); ++i) {
    if (state_->places[i].is_gone) out.push_back(static_cast<int>(i));
  }
  return out;
}

void Pushers::set_free(const std::vector<int>& numbers) {
  const std::lock_guard lock(state_->mutex);
  for (const int number : numbers) state_->places[static_cast<size_t>(number)] = {};
}

std::vector<std::string> Pushers::names() const {
  std::vector<std::string> out;
  const std::lock_guard lock(state_->mutex);
  for (const State::Place& place : state_->places) out.push_back(place.name);
  return out;
}

}  // namespace sidereal::resources
