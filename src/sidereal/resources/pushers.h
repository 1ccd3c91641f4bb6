#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

/// The workers that push to a task.
namespace sidereal::resources {

/// The workers that figures of pushes tell apart, each by a small number, so that what counts a
/// push looks nothing up. A number is another worker's once no step can push with it any more, and
/// what was counted with it has been put aside.
/// Thread: any.
class Pushers {
 public:
  /// Workers that have a number each; others share kOthers.
  static constexpr size_t kMax = 64;
  static constexpr int kOthers = 0;

  /// A worker that pushes: a holder may count with its number.
  class Pusher {
   public:
    [[nodiscard]] int number() const { return number_; }

   private:
    friend class Pushers;
    explicit Pusher(int number) : number_(number) {}
    const int number_;
  };

  Pushers();

  /// The worker of this name, the same as long as it is held; "": one of the others.
  std::shared_ptr<const Pusher> enter(const std::string& name);

  /// Numbers that are not held any more, which are to be set free when what was counted with them
  /// has been put aside.
  [[nodiscard]] std::vector<int> gone() const;
  void set_free(const std::vector<int>& numbers);
  /// By number; "": the others, and numbers without a worker.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace sidereal::resources
