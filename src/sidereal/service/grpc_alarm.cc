#include "sidereal/service/grpc_alarm.h"

#include <grpcpp/alarm.h>

#include <utility>

namespace sidereal::service {

namespace {

class GrpcAlarm final : public master::Alarm {
 public:
  void set(std::chrono::milliseconds after, std::function<void()> fn) override {
    // One that was cancelled is called late, maybe after the server's end.
    alarm_.Set(std::chrono::system_clock::now() + after, [fn = std::move(fn)](bool fired) {
      if (fired) fn();
    });
  }
  void cancel() override { alarm_.Cancel(); }

 private:
  grpc::Alarm alarm_;
};

}  // namespace

std::unique_ptr<master::Alarm> grpc_alarm() { return std::make_unique<GrpcAlarm>(); }

}  // namespace sidereal::service
