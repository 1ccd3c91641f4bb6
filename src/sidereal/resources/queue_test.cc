#include "sidereal/resources/queue.h"

#include <gtest/gtest.h>

#include <thread>

namespace sidereal::resources {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

std::shared_ptr<Queue> queue_of(QueueDef def) {
  def.name = "q";
  if (def.dtypes.empty()) {
    def.dtypes = {DType::kInt64};
    def.shapes = {Shape()};
  }
  Result<std::shared_ptr<Queue>> made = Queue::make(std::move(def));
  SR_CHECK(made.ok(), "{}", base::message_of(made.status()));
  return *made;
}

Tuple one(int64_t value) { return {Tensor::scalar<int64_t>(value)}; }

Tuple many(const std::vector<int64_t>& values) {
  return {Tensor::of(Shape{static_cast<int64_t>(values.size())}, values)};
}

std::vector<int64_t> numbers(Ticket& ticket) {
  const auto data = ticket.result()[0].data<const int64_t>();
  return {data.begin(), data.end()};
}

void put(Queue& queue, int64_t value) {
  const auto ticket = queue.enqueue(one(value), false);
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  ASSERT_TRUE((*ticket)->poll());
}

int64_t get(Queue& queue) {
  const auto ticket = queue.dequeue(1, false, false);
  EXPECT_TRUE(ticket.ok() && (*ticket)->poll() && (*ticket)->status().ok());
  return numbers(**ticket)[0];
}

TEST(Queue, gives_out_in_order_and_waits_at_both_ends) {
  const auto queue = queue_of({.capacity = 2});
  const auto waiting = queue->dequeue(3, true, false);
  EXPECT_FALSE((*waiting)->poll());
  const auto batch = queue->enqueue(many({1, 2, 3, 4, 5, 6}), true);
  // The first three went through, two are in, the last waits for room.
  ASSERT_TRUE((*waiting)->poll());
  EXPECT_EQ(numbers(**waiting), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_FALSE((*batch)->poll());
  EXPECT_EQ(queue->size(), 2);
  EXPECT_EQ(get(*queue), 4);
  EXPECT_TRUE((*batch)->poll());
  EXPECT_EQ(queue->describe(), "queue 'q' (2 elements of 2)");
}

TEST(Queue, serves_those_who_wait_in_the_order_they_came) {
  const auto queue = queue_of({});
  const auto first = queue->dequeue(2, true, false);
  const auto second = queue->dequeue(1, false, false);
  put(*queue, 1);
  EXPECT_FALSE((*second)->poll());
  put(*queue, 2);
  put(*queue, 3);
  EXPECT_EQ(numbers(**first), (std::vector<int64_t>{1, 2}));
  ASSERT_TRUE((*second)->poll());
  EXPECT_EQ(numbers(**second), (std::vector<int64_t>{3}));
}

TEST(Queue, gets_back_what_a_request_had_that_was_given_up) {
  const auto queue = queue_of({});
  put(*queue, 1);
  put(*queue, 2);
  {
    const auto ticket = queue->dequeue(3, true, false);
    EXPECT_FALSE((*ticket)->poll());
    EXPECT_EQ(queue->size(), 0);
  }
  EXPECT_EQ(get(*queue), 1);
  EXPECT_EQ(get(*queue), 2);
}

TEST(Queue, that_is_closed_gives_out_the_rest_and_then_ends_requests) {
  const auto queue = queue_of({.capacity = 2});
  const auto filling = queue->enqueue(many({1, 2, 3}), true);
  queue->close(false);
  const auto more = queue->enqueue(one(9), false);
  ASSERT_TRUE((*more)->poll());
  EXPECT_EQ((*more)->status().code(), StatusCode::kCancelled);
  EXPECT_EQ(get(*queue), 1);
  EXPECT_TRUE((*filling)->poll());
  const auto too_many = queue->dequeue(3, true, false);
  ASSERT_TRUE((*too_many)->poll());
  EXPECT_EQ((*too_many)->status().code(), StatusCode::kOutOfRange);
  const auto rest = queue->dequeue(3, true, true);
  ASSERT_TRUE((*rest)->poll());
  EXPECT_EQ(numbers(**rest), (std::vector<int64_t>{2, 3}));
}

TEST(Queue, that_is_closed_may_end_what_waits_to_go_in) {
  const auto queue = queue_of({.capacity = 1});
  const auto filling = queue->enqueue(many({1, 2}), true);
  queue->close(true);
  ASSERT_TRUE((*filling)->poll());
  EXPECT_EQ((*filling)->status().code(), StatusCode::kCancelled);
  EXPECT_EQ(get(*queue), 1);
}

TEST(Queue, shuffles_and_keeps_elements_back_until_it_is_closed) {
  const auto queue = queue_of({.order = QueueOrder::kShuffled, .min_after_dequeue = 2, .seed = 7});
  std::vector<int64_t> all;
  for (int64_t i = 0; i < 50; ++i) put(*queue, i);
  for (int i = 0; i < 48; ++i) all.push_back(get(*queue));
  const auto waiting = queue->dequeue(1, false, false);
  EXPECT_FALSE((*waiting)->poll());
  queue->close(false);
  ASSERT_TRUE((*waiting)->poll());
  all.push_back(numbers(**waiting)[0]);
  all.push_back(get(*queue));
  EXPECT_FALSE(std::is_sorted(all.begin(), all.end()));
  std::sort(all.begin(), all.end());
  for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(all[i], i);
}

TEST(Queue, of_priorities_gives_the_smallest_first_and_equal_ones_in_order) {
  QueueDef def{.order = QueueOrder::kPriority};
  def.dtypes = {DType::kInt64, DType::kInt64};
  def.shapes = {Shape(), Shape()};
  const auto queue = queue_of(def);
  for (const auto& [priority, value] : {std::pair{5, 1}, {2, 2}, {5, 3}, {-1, 4}}) {
    const Tuple element = {Tensor::scalar<int64_t>(priority), Tensor::scalar<int64_t>(value)};
    ASSERT_TRUE(queue->enqueue(element, false).ok());
  }
  const auto batch = queue->dequeue(4, true, false);
  ASSERT_TRUE((*batch)->poll());
  const auto values = (*batch)->result()[1].data<const int64_t>();
  EXPECT_EQ((std::vector<int64_t>(values.begin(), values.end())),
            (std::vector<int64_t>{4, 2, 1, 3}));
}

TEST(Queue, pads_batches_of_numbers_and_of_strings) {
  QueueDef def{.pad = true};
  def.dtypes = {DType::kInt64, DType::kString};
  def.shapes = {Shape{-1}, Shape{-1, 2}};
  const auto queue = queue_of(def);
  ASSERT_TRUE(
      queue->enqueue({many({1, 2})[0], Tensor::strings(Shape{1, 2}, {"a", "b"})}, false).ok());
  ASSERT_TRUE(
      queue->enqueue({many({3})[0], Tensor::strings(Shape{2, 2}, {"c", "d", "e", "f"})}, false)
          .ok());
  const auto batch = queue->dequeue(2, true, false);
  ASSERT_TRUE((*batch)->poll());
  EXPECT_EQ(numbers(**batch), (std::vector<int64_t>{1, 2, 3, 0}));
  const auto strings = (*batch)->result()[1].data<const std::string_view>();
  EXPECT_EQ((std::vector<std::string>(strings.begin(), strings.end())),
            (std::vector<std::string>{"a", "b", "", "", "c", "d", "e", "f"}));
}

TEST(Queue, refuses_definitions_and_elements_that_do_not_fit) {
  const auto code = [](QueueDef def) { return Queue::make(std::move(def)).status().code(); };
  EXPECT_EQ(code({.name = "q"}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.name = "q", .dtypes = {DType::kInt64}, .capacity = 0}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.name = "q", .dtypes = {DType::kInt64}, .shapes = {Shape{-1}}}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.name = "q", .order = QueueOrder::kPriority, .dtypes = {DType::kInt32}}),
            StatusCode::kInvalidArgument);
  const auto queue = queue_of({});
  EXPECT_FALSE(queue->enqueue({Tensor::scalar(1.0F)}, false).ok());
  EXPECT_FALSE(queue->enqueue(many({1, 2}), false).ok());
  EXPECT_FALSE(queue->enqueue({}, false).ok());
  EXPECT_FALSE(queue->dequeue(-1, true, false).ok());
}

TEST(Manager, wakes_who_waits_for_a_change_and_says_when_none_came) {
  Manager manager;
  const uint64_t seen = manager.changes();
  EXPECT_FALSE(manager.wait(seen, std::chrono::milliseconds(1)));
  std::thread other([&] { manager.changed(); });
  EXPECT_TRUE(manager.wait(seen, std::chrono::minutes(1)));
  other.join();
}

TEST(Manager, ends_what_waits_for_a_resource_that_goes) {
  Manager manager;
  const auto queue = manager.find_or_create<Queue>("q", [] { return queue_of({}); });
  const auto waiting = (*queue)->dequeue(1, false, false);
  EXPECT_TRUE(manager.erase("q"));
  ASSERT_TRUE((*waiting)->poll());
  EXPECT_EQ((*waiting)->status().code(), StatusCode::kCancelled);
  EXPECT_EQ(manager.find<Queue>("q").status().code(), StatusCode::kNotFound);
}

TEST(Manager, is_used_by_many_threads_at_once) {
  Manager manager;
  const auto queue = *manager.find_or_create<Queue>("q", [] { return queue_of({.capacity = 3}); });
  constexpr int64_t kEach = 500;
  const auto wait_for = [&](Ticket& ticket) {
    while (!ticket.poll()) {
      const uint64_t seen = manager.changes();
      if (ticket.poll()) return;
      ASSERT_TRUE(manager.wait(seen, std::chrono::minutes(1)));
    }
  };
  std::atomic<int64_t> sum = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int64_t i = 1; i <= kEach; ++i) {
        const auto ticket = queue->enqueue(one(i), false);
        manager.changed();
        wait_for(**ticket);
      }
    });
    threads.emplace_back([&] {
      for (int64_t i = 1; i <= kEach; ++i) {
        const auto ticket = queue->dequeue(1, false, false);
        manager.changed();
        wait_for(**ticket);
        sum += numbers(**ticket)[0];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, kEach * (kEach + 1));
}

}  // namespace
}  // namespace sidereal::resources
