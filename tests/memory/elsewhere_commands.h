// What commands do with contexts and streams other than the first: whose memory is freed where.
// Answers as the program that includes it does; contexts and streams are handles, 0 is none.
#pragma once

#include <sstream>
#include <string>

#include "support/fence_program.h"

//   context GPU | here | enter CONTEXT | end CONTEXT    made and current; the current one
//   retain GPU | release_primary GPU | reset GPU        of primary contexts
//   stream | in STREAM           a new one; the one that commands use from now on
//   wait                         for it
//   load BYTES | unload MODULE   a module with that much of variables
//   begin | end_capture          a capture of it, whose graph is destroyed
// False: none of these commands. `*answer`: what they give beside the code.
inline bool Elsewhere(const std::string& what, std::istringstream& words, CUstream* stream,
                      CUresult* code, uint64_t* answer) {
  const auto next = [&words] {
    uint64_t number = 0;
    words >> number;
    return number;
  };
  const auto next_context = [&next] { return reinterpret_cast<CUcontext>(next()); };
  CUcontext context = nullptr;
  CUstream made = nullptr;
  if (what == "context") {
    *code = cuCtxCreate_v2(&context, 0, static_cast<CUdevice>(next()));
    *answer = reinterpret_cast<uint64_t>(context);
  } else if (what == "here") {
    *code = cuCtxGetCurrent(&context);
    *answer = reinterpret_cast<uint64_t>(context);
  } else if (what == "enter") {
    *code = cuCtxSetCurrent(next_context());
  } else if (what == "end") {
    *code = cuCtxDestroy_v2(next_context());
  } else if (what == "retain") {
    *code = cuDevicePrimaryCtxRetain(&context, static_cast<CUdevice>(next()));
    *answer = reinterpret_cast<uint64_t>(context);
  } else if (what == "release_primary") {
    *code = cuDevicePrimaryCtxRelease_v2(static_cast<CUdevice>(next()));
  } else if (what == "reset") {
    *code = cuDevicePrimaryCtxReset_v2(static_cast<CUdevice>(next()));
  } else if (what == "stream") {
    *code = cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
    *answer = reinterpret_cast<uint64_t>(made);
  } else if (what == "in") {
    *stream = reinterpret_cast<CUstream>(next());
    *code = CUDA_SUCCESS;
  } else if (what == "wait") {
    *code = cuStreamSynchronize(*stream);
  } else if (what == "load") {
    const std::string image =
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .global .align 16 .b8 table[" +
        std::to_string(next()) + "];\n.visible .entry touch() { ret; }\n";
    CUmodule module = nullptr;
    *code = cuModuleLoadData(&module, image.c_str());
    *answer = reinterpret_cast<uint64_t>(module);
  } else if (what == "unload") {
    *code = cuModuleUnload(reinterpret_cast<CUmodule>(next()));
  } else if (what == "begin") {
    *code = cuStreamBeginCapture_v2(*stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  } else if (what == "end_capture") {
    CUgraph graph = nullptr;
    *code = cuStreamEndCapture(*stream, &graph);
    if (graph != nullptr) cuGraphDestroy(graph);
  } else {
    return false;
  }
  return true;
}
