#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/service/callback_order.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/standbys.h"
#include "sidereal/task/failure.h"

/// For the .cc files of service.
namespace sidereal::service {

/// A TakeCopy call: gives copies piece by piece, each when the one before has left, and holds them
/// until it ends. Deletes itself then.
class CopyStream final : public grpc::ServerWriteReactor<session::v1::TakeCopyReply> {
 public:
  static CopyStream* give(std::vector<Standbys::Copy> copies) {
    auto* const out = new CopyStream(std::move(copies));
    for (const Standbys::Copy& one : out->copies_) {
      session::v1::HeldCopy* const said = out->reply_.add_copies();
      said->set_state_group(one.state_group);
      for (const resources::PushedSoFar& pushed : one.held->pushed()) {
        task::to_proto(pushed, said->add_pushed());
      }
    }
    callback_ran(out);
    out->StartWrite(&out->reply_);
    return out;
  }
  /// Which later start has deposed the one that asks; 0: none.
  static CopyStream* say(uint64_t deposed_by) {
    auto* const out = new CopyStream({});
    out->reply_.set_deposed_by(deposed_by);
    callback_ran(out);
    out->StartWrite(&out->reply_);
    return out;
  }
  static CopyStream* refuse(const Status& why) {
    auto* const out = new CopyStream({});
    callback_ran(out);
    out->Finish(to_grpc(why));
    return out;
  }

  void OnWriteDone(bool ok) override {
    callback_runs(this);
    while (ok && next_ < copies_.size()) {
      std::optional<std::string> piece = copies_[next_].held->next(kPieceBytes);
      if (!piece.has_value()) {
        ++next_;
        continue;
      }
      reply_.Clear();
      reply_.set_copy(static_cast<int32_t>(next_));
      reply_.set_piece(*std::move(piece));
      callback_ran(this);
      return StartWrite(&reply_);
    }
    callback_ran(this);
    Finish(grpc::Status::OK);
  }
  void OnDone() override {
    callback_runs(this);
    delete this;
  }

 private:
  static constexpr size_t kPieceBytes = size_t{1} << 20;

  explicit CopyStream(std::vector<Standbys::Copy> copies) : copies_(std::move(copies)) {}

  const std::vector<Standbys::Copy> copies_;
  size_t next_ = 0;
  session::v1::TakeCopyReply reply_;
};

inline void to_proto(const TakenCopy& taken, session::v1::TakenCopy* out) {
  out->set_from(taken.from);
  out->set_seconds(taken.seconds);
  out->set_bytes(taken.bytes);
  out->set_variables(taken.variables);
  out->set_rows(taken.rows);
  for (const resources::PushedSoFar& one : taken.pushed) task::to_proto(one, out->add_pushed());
}

}  // namespace sidereal::service
