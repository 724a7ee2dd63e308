"""Stand-ins for the few system headers that NVIDIA's headers include.

They make a parse independent of the machine: no libc, Mesa or VDPAU headers, no compiler. Only
widths matter; every one is fixed by the standard or by the ABI of the API concerned.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

STUBS: Mapping[str, bytes] = MappingProxyType(
    {
        "stddef.h": b"""#pragma once
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef __WCHAR_TYPE__ wchar_t;
#define NULL ((void *)0)
""",
        "stdint.h": b"""#pragma once
typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __INTPTR_TYPE__ intptr_t;
typedef __UINTPTR_TYPE__ uintptr_t;
""",
        "stdlib.h": b"#pragma once\n#include <stddef.h>\n",
        "GL/gl.h": b"#pragma once\ntypedef unsigned int GLenum;\ntypedef unsigned int GLuint;\n",
        "EGL/egl.h": b"#pragma once\ntypedef int EGLint;\ntypedef void *EGLDisplay;\n",
        "EGL/eglext.h": b"""#pragma once
typedef void *EGLImageKHR;
typedef void *EGLStreamKHR;
typedef void *EGLSyncKHR;
""",
        "vdpau/vdpau.h": b"""#pragma once
#include <stdint.h>
typedef uint32_t VdpDevice;
typedef uint32_t VdpVideoSurface;
typedef uint32_t VdpOutputSurface;
typedef uint32_t VdpFuncId;
typedef int VdpStatus;
typedef VdpStatus VdpGetProcAddress(VdpDevice device, VdpFuncId function_id,
                                    void **function_pointer);
""",
    }
)
