#include "sidereal/sys/posix/look_ups.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace sidereal::sys::posix {

namespace {

constexpr int kThreadsMax = 8;

}  // namespace

Result<std::vector<Address>> resolve_all(const Address& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  const int error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return base::not_found(
        "host '{}' of address {} is unknown: {}; check the name", address.host, address.to_string(),
        error == EAI_SYSTEM ? std::generic_category().message(errno) : gai_strerror(error));
  }
  std::vector<Address> out;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
      if (a->ai_family != family) continue;
      char text[INET6_ADDRSTRLEN] = "";
      const void* in =
          family == AF_INET
              ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(a->ai_addr)->sin_addr)
              : &reinterpret_cast<sockaddr_in6*>(a->ai_addr)->sin6_addr;
      inet_ntop(family, in, text, sizeof(text));
      const Address number = {text, address.port};
      if (std::find(out.begin(), out.end(), number) == out.end()) out.push_back(number);
    }
  }
  freeaddrinfo(found);
  if (out.empty()) return base::not_found("host '{}' has no address", address.host);
  return out;
}

struct LookUps::State {
  struct Question {
    Address address;
    Done done;
  };
  std::mutex mutex;
  std::deque<Question> questions;
  int threads = 0;
  bool closed = false;
};

LookUps::LookUps() : state_(std::make_shared<State>()) {}

LookUps::~LookUps() {
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
  state_->questions.clear();
}

void LookUps::ask(const Address& address, Done done) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->questions.push_back({address, std::move(done)});
    if (state_->threads == kThreadsMax) return;
    ++state_->threads;
  }
  // It cannot be joined while the name service is silent; it touches nothing but the state.
  std::thread([state = state_] { work(state); }).detach();
}

void LookUps::work(const std::shared_ptr<State>& state) {
  for (;;) {
    State::Question question;
    {
      const std::lock_guard lock(state->mutex);
      if (state->questions.empty()) {
        --state->threads;
        return;
      }
      question = std::move(state->questions.front());
      state->questions.pop_front();
    }
    const Result<std::vector<Address>> found = resolve_all(question.address);
    // Under the lock: after the destructor nobody is called any more.
    const std::lock_guard lock(state->mutex);
    if (!state->closed) question.done(found);
  }
}

}  // namespace sidereal::sys::posix
