// The fields that choose tokens: sampling, biases, and where an answer stops.
#pragma once

#include "server/request.h"

namespace sluice::server {

// Throws ApiError(400) naming field, value and limit. Draws a seed where none is given.
decode::SamplingParameters read_sampling(const Fields& fields, const RequestContext& context);

// Without empty ones.
std::vector<std::string> read_stop_strings(const Fields& fields, const RequestLimits& limits);

}  // namespace sluice::server
