// One question to a server at a numeric address over HTTP/1.1, and its answer, within a bound of
// time and of bytes. No name is resolved, no signal raised, no descriptor inherited or left. Must
// not know what is asked.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string_view>

namespace gpufence {

inline constexpr size_t kAddressBytes = 64;

// True for an IPv4 or IPv6 address as text, without brackets or scope.
bool IsAddress(const char* text);

struct HttpQuestion {
  const char* address;
  uint16_t port;
  std::string_view request;  // with its headers, which end in an empty line
  uint64_t deadline_ns;      // of CLOCK_MONOTONIC
};

// Null: *body, a piece of `buffer`, is what the status 200 came with. Else what went wrong, as a
// clause whose subject is the server.
const char* AskHttp(const HttpQuestion& question, char* buffer, size_t bytes,
                    std::string_view* body);

}  // namespace gpufence
