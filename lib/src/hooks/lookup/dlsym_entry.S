// The exported dlsym and dlvsym.
//
// A name that cannot be ours leaves by a jump with every register and the return address as the
// caller left them: RTLD_NEXT and RTLD_DEFAULT are relative to that address. Only names that begin
// with "cu", "nvml" or "dl" take the detour through hooks/lookup/dlsym.cpp.
//
// Until the next hop is known (the first lookup of the process) every name takes the detour.

#if defined(__x86_64__)

.macro lookup_stub name, filter, next, caller_reg
    .globl \name
    .type \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    cmpq    $0, \next(%rip)
    je      1f
    testq   %rsi, %rsi
    jz      2f
    movzbl  (%rsi), %eax
    testl   %eax, %eax
    jz      2f
    movb    1(%rsi), %ah
    cmpl    $0x7563, %eax           // "cu"
    je      1f
    cmpl    $0x766e, %eax           // "nv"
    je      1f
    cmpl    $0x6c64, %eax           // "dl"
    je      1f
2:  jmp     *\next(%rip)
1:  pushq   %rdi
    .cfi_adjust_cfa_offset 8
    pushq   %rsi
    .cfi_adjust_cfa_offset 8
    pushq   %rdx
    .cfi_adjust_cfa_offset 8
    movq    24(%rsp), \caller_reg   // the return address: who asks
    call    \filter
    movq    %rdx, %rcx
    popq    %rdx
    .cfi_adjust_cfa_offset -8
    popq    %rsi
    .cfi_adjust_cfa_offset -8
    popq    %rdi
    .cfi_adjust_cfa_offset -8
    testq   %rcx, %rcx
    jz      2b
    ret
    .cfi_endproc
    .size \name, . - \name
.endm

    .text
    lookup_stub dlsym, gpufence_filter_dlsym, gpufence_next_dlsym, %rdx
    lookup_stub dlvsym, gpufence_filter_dlvsym, gpufence_next_dlvsym, %rcx

    .section .note.gnu.property, "a"
    .p2align 3
    .long   4, 16, 5
    .asciz  "GNU"
    .long   0xc0000002, 4, 3, 0     // x86 feature: IBT and SHSTK

#elif defined(__aarch64__)

.macro lookup_stub name, filter, next, caller_reg
    .globl \name
    .type \name, %function
    .p2align 4
\name:
    .cfi_startproc
    hint    #34                     // bti c, spelled for old assemblers
    adrp    x16, \next
    ldr     x16, [x16, #:lo12:\next]
    cbz     x16, 1f
    cbz     x1, 2f
    ldrb    w9, [x1]
    cbz     w9, 2f
    ldrb    w10, [x1, #1]
    orr     w9, w9, w10, lsl #8
    mov     w10, #0x7563            // "cu"
    cmp     w9, w10
    b.eq    1f
    mov     w10, #0x766e            // "nv"
    cmp     w9, w10
    b.eq    1f
    mov     w10, #0x6c64            // "dl"
    cmp     w9, w10
    b.eq    1f
2:  br      x16
1:  stp     x29, x30, [sp, #-48]!
    .cfi_adjust_cfa_offset 48
    .cfi_rel_offset x29, 0
    .cfi_rel_offset x30, 8
    mov     x29, sp
    stp     x0, x1, [sp, #16]
    str     x2, [sp, #32]
    mov     \caller_reg, x30        // the return address: who asks
    bl      \filter
    mov     x9, x1
    mov     x10, x0
    ldp     x0, x1, [sp, #16]
    ldr     x2, [sp, #32]
    ldp     x29, x30, [sp], #48
    .cfi_adjust_cfa_offset -48
    .cfi_restore x29
    .cfi_restore x30
    adrp    x16, \next
    ldr     x16, [x16, #:lo12:\next]
    cbz     x9, 2b
    mov     x0, x10
    ret
    .cfi_endproc
    .size \name, . - \name
.endm

    .text
    lookup_stub dlsym, gpufence_filter_dlsym, gpufence_next_dlsym, x2
    lookup_stub dlvsym, gpufence_filter_dlvsym, gpufence_next_dlvsym, x3

    .section .note.gnu.property, "a"
    .p2align 3
    .long   4, 16, 5
    .asciz  "GNU"
    .long   0xc0000000, 4, 1, 0     // AArch64 feature: BTI

#else
#error "gpufence knows x86-64 and aarch64"
#endif

    .section .note.GNU-stack, "", %progbits
