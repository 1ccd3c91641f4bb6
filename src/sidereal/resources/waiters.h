#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/tensor/tensor.h"

/// What waits at a queue, an accumulator or a barrier.
namespace sidereal::resources {

using Tuple = std::vector<tensor::Tensor>;

/// One request that may have to wait for its turn. The resource fills it in; the one who asked
/// looks at it after each change. Giving it up (the last owner lets go of the Ticket) withdraws it.
/// Thread: the fields belong to the resource's lock until `done` was seen through Ticket::poll().
struct Request {
  int64_t count = 0;        ///< How many elements are wanted.
  bool up_to = false;       ///< Fewer will do once no more can come.
  bool many = false;        ///< The result is a batch.
  std::vector<Tuple> rows;  ///< Still to be put in, or taken out so far.
  bool done = false;
  Status status;
  Tuple result;
};
using RequestPtr = std::shared_ptr<Request>;

/// Where requests are made.
class WaitingRoom {
 public:
  virtual ~WaitingRoom();
  /// True once the request has its result.
  virtual bool poll(const Request& request) = 0;
  /// Ends a request that nobody wants any more.
  virtual void withdraw(const RequestPtr& request) = 0;
};

/// A request at the place it waits at; withdrawn when it goes out of scope unfinished.
/// Thread: core-local.
class Ticket {
 public:
  Ticket(std::shared_ptr<WaitingRoom> room, RequestPtr request)
      : room_(std::move(room)), request_(std::move(request)) {}
  ~Ticket();
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  /// True once status() and result() say how it ended.
  bool poll();
  [[nodiscard]] const Status& status() const { return request_->status; }
  [[nodiscard]] Tuple& result() { return request_->result; }

 private:
  std::shared_ptr<WaitingRoom> room_;
  RequestPtr request_;
  bool done_ = false;
};

/// The values `rows[i][component]` one under another. They have one dtype, and one shape unless
/// `pad`: then each is filled up with zeros or empty strings to the longest extents.
tensor::Tensor stack_rows(const std::vector<Tuple>& rows, size_t component, bool pad);

/// Row `row` of a batch, as a tensor of its own memory.
tensor::Tensor copy_row(const tensor::Tensor& batch, int64_t row);

}  // namespace sidereal::resources
