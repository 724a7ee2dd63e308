// trampolines.S: hookgen 1, templates/trampolines.S.j2, model 0d5d24616bf57027
// Generated: change the model or the template, never this file.
// clang-format off
// In: the stack and all argument registers as the caller left them.  Out: the same, in the function
// that gpufence_resolve(index) returned. Only scratch registers that no argument uses are changed.

#if defined(__x86_64__)

.macro LANDING_PAD
  endbr64
.endm

.macro CARRY_INDEX index
  movl $\index, %r11d
.endm

.macro JUMP_TO_ENTRY index
  jmp *gpufence_entry+8*\index(%rip)
.endm

#elif defined(__aarch64__)

.macro LANDING_PAD
  hint #34  // bti c, spelled for assemblers that do not know it
.endm

.macro CARRY_INDEX index
  mov w17, #\index
.endm

.macro JUMP_TO_ENTRY index
  adrp x16, gpufence_entry+8*\index
  ldr x16, [x16, #:lo12:gpufence_entry+8*\index]
  br x16
.endm

#else
#error "gpufence knows x86-64 and aarch64 only"
#endif

#if defined(__x86_64__)
#define JUMP jmp
#else
#define JUMP b
#endif

.macro LAZY index
  .globl gpufence_lazy_\index
  .hidden gpufence_lazy_\index
  .type gpufence_lazy_\index, %function
  .balign 16
gpufence_lazy_\index:
  LANDING_PAD
  CARRY_INDEX \index
  JUMP .Lresolve_and_go
  .size gpufence_lazy_\index, . - gpufence_lazy_\index
.endm

.macro TRAMPOLINE name, index
  .weak \name
  .type \name, %function
  .balign 16
\name:
  LANDING_PAD
  JUMP_TO_ENTRY \index
  .size \name, . - \name
.endm

.hidden gpufence_entry
.hidden gpufence_resolve
.text

// Whatever else is compiled from this model asks for it (model.h).
.globl gpufence_compiled_from_model_0d5d24616bf57027
.hidden gpufence_compiled_from_model_0d5d24616bf57027
gpufence_compiled_from_model_0d5d24616bf57027:

.type .Lresolve_and_go, %function
.balign 16
.Lresolve_and_go:
  .cfi_startproc
#if defined(__x86_64__)
  pushq %rbp
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %rbp, 0
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  pushq %rax  // al: the number of vector arguments, for a variadic callee
  pushq %rdi
  pushq %rsi
  pushq %rdx
  pushq %rcx
  pushq %r8
  pushq %r9
  subq $136, %rsp  // eight vectors, and 8 bytes that restore 16-byte alignment
  movaps %xmm0, (%rsp)
  movaps %xmm1, 16(%rsp)
  movaps %xmm2, 32(%rsp)
  movaps %xmm3, 48(%rsp)
  movaps %xmm4, 64(%rsp)
  movaps %xmm5, 80(%rsp)
  movaps %xmm6, 96(%rsp)
  movaps %xmm7, 112(%rsp)
  movl %r11d, %edi
  call gpufence_resolve
  movq %rax, %r11
  movaps (%rsp), %xmm0
  movaps 16(%rsp), %xmm1
  movaps 32(%rsp), %xmm2
  movaps 48(%rsp), %xmm3
  movaps 64(%rsp), %xmm4
  movaps 80(%rsp), %xmm5
  movaps 96(%rsp), %xmm6
  movaps 112(%rsp), %xmm7
  addq $136, %rsp
  popq %r9
  popq %r8
  popq %rcx
  popq %rdx
  popq %rsi
  popq %rdi
  popq %rax
  popq %rbp
  .cfi_def_cfa %rsp, 8
  .cfi_restore %rbp
  jmp *%r11
#else
  stp x29, x30, [sp, #-224]!
  .cfi_def_cfa_offset 224
  .cfi_offset x29, -224
  .cfi_offset x30, -216
  mov x29, sp
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]  // where a large result goes
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  mov w0, w17
  bl gpufence_resolve
  mov x16, x0
  ldp q6, q7, [sp, #192]
  ldp q4, q5, [sp, #160]
  ldp q2, q3, [sp, #128]
  ldp q0, q1, [sp, #96]
  ldr x8, [sp, #80]
  ldp x6, x7, [sp, #64]
  ldp x4, x5, [sp, #48]
  ldp x2, x3, [sp, #32]
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #224
  .cfi_def_cfa_offset 0
  .cfi_restore x29
  .cfi_restore x30
  br x16
#endif
  .cfi_endproc
.size .Lresolve_and_go, . - .Lresolve_and_go

// The stubs leave the stack alone, so one unwind entry covers them all.
.balign 16
.cfi_startproc
LAZY 0  // cuGadgetArmOnly
LAZY 1  // cuGadgetBlend
LAZY 2  // cuGadgetCopy
LAZY 3  // cuGadgetCopy_ptds
LAZY 4  // cuGadgetFill
LAZY 5  // cuGadgetFill_ptsz
LAZY 6  // cuGadgetFree
LAZY 7  // cuGadgetImport
LAZY 8  // cuGadgetMany
LAZY 9  // cuGadgetName
LAZY 10  // cuGadgetOnDone
LAZY 11  // cuGadgetOpen
LAZY 12  // cuGadgetOpen_v2
LAZY 13  // cuGadgetOpen_v3
LAZY 14  // cuGadgetPrivate
LAZY 15  // cuGadgetRelease
LAZY 16  // cuGadgetVersion
LAZY 17  // cuGadgetWalk
LAZY 18  // nvmlErrorString
LAZY 19  // nvmlGaugeGet
LAZY 20  // nvmlGaugeInit_v2
LAZY 21  // nvmlGaugeRead
LAZY 22  // nvmlGaugeRead_v2
LAZY 23  // nvmlGaugeSecret

TRAMPOLINE cuGadgetPrivate, 14
TRAMPOLINE nvmlGaugeSecret, 23
.cfi_endproc

.section .note.gnu.property, "a"
.balign 8
.long 4, 16, 5  // name size, description size, NT_GNU_PROPERTY_TYPE_0
.asciz "GNU"
#if defined(__x86_64__)
.long 0xc0000002, 4, 3, 0  // GNU_PROPERTY_X86_FEATURE_1_AND: IBT and SHSTK
#else
.long 0xc0000000, 4, 1, 0  // GNU_PROPERTY_AARCH64_FEATURE_1_AND: BTI
#endif

.section .note.GNU-stack, "", %progbits
