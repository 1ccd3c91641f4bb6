#include "sidereal/security/flood_watch.h"

#include <grpc/grpc.h>
#include <grpc/support/alloc.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"

namespace sidereal::security {

namespace {

using Json = nlohmann::json;
using sys::posix::host_bytes;

/// New calls between two looks that are not worth a closer look.
constexpr int64_t kFewCalls = 512;
/// Where there are too many, a connection with fewer calls that were not answered goes on.
constexpr int64_t kFewOfOne = 128;
/// What a peer has done before that many calls says little of what it does now.
constexpr int64_t kRecentCalls = 4096;

/// What one of gRPC's functions says.
Json take_json(char* text) {
  Json out = text == nullptr ? Json() : Json::parse(text, nullptr, false);
  gpr_free(text);
  return out;
}

/// A number that is written as a string, as protobuf's JSON writes those of 64 bits.
int64_t number(const Json& object, const char* key) {
  if (!object.is_object()) return 0;
  const auto found = object.find(key);
  if (found == object.end()) return 0;
  if (found->is_number_integer()) return found->get<int64_t>();
  if (!found->is_string()) return 0;
  const auto& text = found->get_ref<const std::string&>();
  int64_t out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

const Json& member(const Json& object, const char* key) {
  static const Json none;
  if (!object.is_object()) return none;
  const auto found = object.find(key);
  return found == object.end() ? none : *found;
}

PeerName end_of(const Json& address) {
  const Json& tcp = member(address, "tcpip_address");
  const Json& host = member(tcp, "ip_address");
  PeerName out;
  if (!host.is_string() || !absl::Base64Unescape(host.get_ref<const std::string&>(), &out.host)) {
    return {};
  }
  out.port = static_cast<uint16_t>(number(tcp, "port"));
  return out;
}

std::vector<int64_t> ids_of_servers() {
  std::vector<int64_t> out;
  const Json said = take_json(grpc_channelz_get_servers(0));
  for (const Json& one : member(said, "server")) {
    out.push_back(number(member(one, "ref"), "serverId"));
  }
  return out;
}

std::vector<int64_t> ids_of_sockets(int64_t server) {
  std::vector<int64_t> out;
  while (true) {
    const Json said =
        take_json(grpc_channelz_get_server_sockets(server, out.empty() ? 0 : out.back() + 1, 1000));
    for (const Json& one : member(said, "socketRef")) out.push_back(number(one, "socketId"));
    if (member(said, "end").is_boolean() || member(said, "socketRef").empty()) return out;
  }
}

}  // namespace

PeerName parse_peer(std::string_view text) {
  constexpr std::string_view kV4 = "ipv4:";
  constexpr std::string_view kV6 = "ipv6:%5B";
  const size_t colon = text.rfind(':');
  PeerName out;
  if (text.starts_with(kV4) && colon > kV4.size()) {
    out.host = host_bytes(std::string(text.substr(kV4.size(), colon - kV4.size())));
  } else if (const size_t end = text.find('%', kV6.size());
             text.starts_with(kV6) && end != text.npos) {
    out.host = host_bytes(std::string(text.substr(kV6.size(), end - kV6.size())));
  } else {
    return {};
  }
  std::from_chars(text.data() + colon + 1, text.data() + text.size(), out.port);
  return out;
}

FloodWatch::FloodWatch(uint16_t port, int64_t one_max, int64_t all_max)
    : port_(port), one_max_(one_max), all_max_(all_max) {}

int64_t FloodWatch::not_ended_well() const {
  if (server_ == 0) return 0;
  const Json said = take_json(grpc_channelz_get_server(server_));
  const Json& data = member(member(said, "server"), "data");
  return number(data, "callsStarted") - number(data, "callsSucceeded");
}

std::vector<ConnectionCalls> FloodWatch::connections() {
  std::vector<ConnectionCalls> out;
  for (const int64_t server : server_ != 0 ? std::vector{server_} : ids_of_servers()) {
    for (const int64_t id : ids_of_sockets(server)) {
      const Json said = take_json(grpc_channelz_get_socket(id));
      const Json& socket = member(said, "socket");
      if (end_of(member(socket, "local")).port != port_) continue;
      server_ = server;
      const Json& data = member(socket, "data");
      const int64_t begun = number(data, "streamsStarted");
      const int64_t ended_well = number(data, "streamsSucceeded");
      out.push_back(
          {.id = id,
           .peer = end_of(member(socket, "remote")),
           .begun = begun,
           .answered = std::max(ended_well, std::min(number(data, "messagesSent"), begun)),
           .under_way = begun - ended_well - number(data, "streamsFailed")});
    }
  }
  return out;
}

void RecentCalls::see(const ConnectionCalls& now) {
  begun_ += now.begun - std::exchange(all_begun_, now.begun);
  answered_ += now.answered - std::exchange(all_answered_, now.answered);
  while (begun_ > kRecentCalls) {
    begun_ /= 2;
    answered_ /= 2;
  }
}

bool RecentCalls::mostly_begins() const {
  const int64_t others = begun_ - answered_;
  return others >= kFewOfOne && others > answered_;
}

std::vector<const ConnectionCalls*> FloodWatch::floods(const std::vector<ConnectionCalls>& all) {
  int64_t under_way = 0;
  for (const ConnectionCalls& one : all) under_way += one.under_way;
  is_overloaded_ = under_way > all_max_ / 2;
  std::map<int64_t, RecentCalls> recent;
  std::vector<const ConnectionCalls*> out;
  const ConnectionCalls* most = nullptr;
  for (const ConnectionCalls& one : all) {
    RecentCalls& calls = recent[one.id] = recent_[one.id];
    calls.see(one);
    if (ended_.contains(one.id)) continue;
    const int64_t may = calls.mostly_begins() ? one_max_ : all_max_;
    if (one.under_way > may || (under_way > all_max_ && calls.mostly_begins())) out.push_back(&one);
    if (most == nullptr || one.under_way > most->under_way) most = &one;
  }
  recent_ = std::move(recent);
  // What ends already still counts, and is nobody else's fault.
  for (const ConnectionCalls& one : all) under_way -= ended_.contains(one.id) ? one.under_way : 0;
  if (under_way > all_max_ && out.empty()) out.push_back(most);
  return out;
}

std::set<PeerName> FloodWatch::look() {
  const int64_t not_ended_well = this->not_ended_well();
  is_busy_ = is_overloaded_ || not_ended_well - not_ended_well_ > kFewCalls;
  if (server_ != 0 && !is_busy_) return {};
  not_ended_well_ = not_ended_well;
  const std::vector<ConnectionCalls> all = connections();
  const std::vector<const ConnectionCalls*> floods = this->floods(all);
  std::set<int64_t> ended;
  std::set<PeerName> out;
  for (const ConnectionCalls& one : all) {
    if (ended_.contains(one.id)) ended.insert(one.id);
  }
  for (const ConnectionCalls* const one : floods) {
    ended.insert(one->id);
    out.insert(one->peer);
  }
  ended_ = std::move(ended);
  if (!out.empty()) sys::posix::reset_connections(out, port_);
  return out;
}

}  // namespace sidereal::security
