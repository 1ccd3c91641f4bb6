#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "../ps/work.h"
#include "sides.h"

namespace sidereal::bench {

namespace {

constexpr int kDescriptorsMax = 1024;
constexpr uint64_t kLookEvery = 8;
constexpr int64_t kSmallBytes = 4096;

int64_t quantile(std::vector<int64_t>* values, double q) {
  if (values->empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(q * static_cast<double>(values->size() - 1));
  std::nth_element(values->begin(), values->begin() + at, values->end());
  return (*values)[static_cast<size_t>(at)];
}

}  // namespace

Recorder::Recorder(const Load& load)
    : load_(load),
      look_mask_(load.outstanding > 1 && load.bytes <= kSmallBytes ? kLookEvery - 1 : 0),
      warm_end_(now_ns() + load.warm_ns) {}

int64_t Recorder::sent() { return (count_++ & look_mask_) == 0 ? now_ns() : 0; }

bool Recorder::answered(int64_t sent) {
  if (over_) return false;
  if (began_ != 0) ++outcome_.messages;
  if (sent == 0) return true;
  const int64_t now = now_ns();
  if (began_ == 0) {
    if (now >= warm_end_) began_ = now;
    return true;
  }
  times_.push_back(now - sent);
  outcome_.ns = now - began_;
  over_ = outcome_.ns >= load_.measure_ns;
  return !over_;
}

Outcome Recorder::outcome() {
  outcome_.p50_ns = quantile(&times_, 0.5);
  outcome_.p99_ns = quantile(&times_, 0.99);
  return outcome_;
}

void use_cubic() {
  for (int fd = 0; fd < kDescriptorsMax; ++fd) {
    int protocol = 0;
    socklen_t size = sizeof(protocol);
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0) continue;
    if (protocol != IPPROTO_TCP) continue;
    for (const std::string name : {"cubic", "reno"}) {
      if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.c_str(), name.size()) == 0) break;
    }
  }
}

std::string default_congestion_control() {
  std::ifstream file("/proc/sys/net/ipv4/tcp_congestion_control");
  std::string name;
  file >> name;
  return name.empty() ? "unknown" : name;
}

}  // namespace sidereal::bench
