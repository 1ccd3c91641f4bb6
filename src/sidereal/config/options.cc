#include "sidereal/config/options.h"

#include <array>

namespace sidereal::config {
namespace {

constexpr int64_t kHourMs = 3'600'000;
constexpr int64_t kTiB = int64_t{1} << 40;

const std::array kFields = {
    IntField<Options>{"spin_us", "us", -2, 1'000'000, &Options::spin_us,
                      "how long an idle lane looks for work before it sleeps; 0 never spins, -1 "
                      "never sleeps, -2 learns what pays"},
    IntField<Options>{"call_deadline_ms", "ms", 1, 24 * kHourMs, &Options::call_deadline_ms,
                      "time a remote call may take when the caller names none"},
    IntField<Options>{"connect_deadline_ms", "ms", 1, kHourMs, &Options::connect_deadline_ms,
                      "time to connect and shake hands, all tries together"},
    IntField<Options>{"keepalive_timeout_ms", "ms", 100, kHourMs, &Options::keepalive_timeout_ms,
                      "a peer silent for this long, though asked, counts as lost"},
    IntField<Options>{"resume_ms", "ms", 0, kHourMs, &Options::resume_ms,
                      "how long calls that were sent wait for a new connection when theirs is "
                      "lost; 0: they end with it"},
    IntField<Options>{"send_buffer_bytes_max", "bytes", 1 << 16, kTiB,
                      &Options::send_buffer_bytes_max,
                      "bytes that may wait to be sent on one connection"},
    IntField<Options>{"frame_bytes_max", "bytes", 1 << 12, kTiB, &Options::frame_bytes_max,
                      "payload bytes of the largest message accepted"},
    IntField<Options>{"lane_receive_bytes_max", "bytes", 1 << 16, kTiB,
                      &Options::lane_receive_bytes_max,
                      "payload bytes that all connections of a lane may be receiving at a time; "
                      "who finds no room waits, and one larger message goes alone"},
    IntField<Options>{"lane_send_bytes_max", "bytes", 1 << 16, kTiB, &Options::lane_send_bytes_max,
                      "bytes that may wait to be sent on all connections of a lane before it "
                      "reads no more from clients that do not take their answers"},
    IntField<Options>{"lane_answer_bytes_max", "bytes", 1 << 16, kTiB,
                      &Options::lane_answer_bytes_max,
                      "bytes of answers that a lane keeps until their clients have them; beyond, "
                      "the client with the most is forgotten: its calls cannot outlive its "
                      "connection"},
    IntField<Options>{"slots_max", "", 1, 65'536, &Options::slots_max,
                      "tensors in the largest message accepted"},
    IntField<Options>{"connections_max", "", 1, 1'000'000, &Options::connections_max,
                      "connections one lane accepts"},
    IntField<Options>{"unproved_max", "", 1, 1'000'000, &Options::unproved_max,
                      "connections of one lane that have not shaken hands; one more ends the "
                      "oldest of them"},
    IntField<Options>{"frame_checksums", "", 0, 1, &Options::frame_checksums,
                      "1: calls and answers are sent with checksums; they are always checked"},
    IntField<Options>{"shared_memory", "", 0, 1, &Options::shared_memory,
                      "1: connections between processes of one host and user go through shared "
                      "memory once they are used, where both ends say so; 0: never"},
    IntField<Options>{"shared_ring_bytes", "bytes", 1 << 16, 1 << 26, &Options::shared_ring_bytes,
                      "memory of such a connection for each direction, rounded down to a power of "
                      "two; the smaller of both ends counts"},
    IntField<Options>{"lane_shared_bytes_max", "bytes", 0, kTiB, &Options::lane_shared_bytes_max,
                      "memory of all such connections of a lane; beyond, they go over TCP"},
    IntField<Options>{"inbox_slots", "", 2, 1 << 24, &Options::inbox_slots,
                      "functions that may wait to run on one lane"},
    IntField<Options>{"standby_timeout_ms", "ms", 10, kHourMs, &Options::standby_timeout_ms,
                      "a synchronous standby that does not acknowledge a push in this time is let "
                      "go: pushes are answered without it until it has caught up again"},
    IntField<Options>{"replicas", "", 1, 16, &Options::replicas,
                      "copies of the variables of each task of the job, with its own; the others "
                      "are synchronous standbys in the tasks after it, from which it takes its "
                      "variables back when it is started again. The same for all of the job"},
    IntField<Options>{"min_insync_replicas", "", 1, 16, &Options::min_insync_replicas,
                      "copies that must have a push before it is answered, with the task's own; "
                      "while too few standbys are in sync pushes wait for them, so that none is "
                      "lost that was answered. At most replicas"},
    IntField<Options>{"standby_wait_ms", "ms", 0, kHourMs, &Options::standby_wait_ms,
                      "how long a task with replicas waits, when it starts, for a task that may "
                      "have its variables; then it begins with nothing"},
    IntField<Options>{"lease_ms", "ms", 50, kHourMs, &Options::lease_ms,
                      "how long a task with replicas answers after a majority of the job 'voter', "
                      "where the cluster has one, has said that it counts; voters give its place "
                      "to another start after twice that. The same for all of the cluster"},
};

}  // namespace

std::span<const IntField<Options>> option_fields() { return kFields; }

Status validate(const Options& options) { return validate(options, option_fields()); }

}  // namespace sidereal::config
