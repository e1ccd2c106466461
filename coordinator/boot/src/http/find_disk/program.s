# Starts the BIOS disk that carries a workflow's receipt. iPXE loads this as a PXE boot program at 0000:7C00; if no disk
# carries the receipt it returns 1, and the boot script goes on. `mod.rs` puts the workflow's uid in its place, and behind it
# the text of the action's index, which stands in the receipt within AFTER bytes; its length is 0 where any action will do.
#
# A receipt lies in the 4096 bytes that end at 1 MiB: sectors 2040 to 2047 of a disk with 512-byte sectors. It counts if
# sector 0 carries the boot signature. BIOS disks are tried in their order, 0x80 to 0x8F.

.code16
.set HERE, 0x0600                       # free below 7C00, and where boot sectors move to as well
.set RECEIPTS, 0x8000
.set SECTOR_0, 0x7c00
.set UID_LENGTH, 36
.set AFTER, 400                         # a name of 253 bytes, a number of 20, and the names of the fields
.set LAST_DRIVE, 0x8f

start:
        cld
        pushw %ds
        pushw %es
        xorw %ax, %ax
        movw %ax, %ds
        movw %ax, %es
        movw $SECTOR_0, %si             # the disk's own first sector will take this place
        movw $HERE, %di
        movw $256, %cx
        rep movsw
        ljmp $0, $(HERE + moved - start)

moved:
        movb $0x80, %dl

try:
        movb $0x41, %ah                 # are there extended reads?
        movw $0x55aa, %bx
        pushw %dx
        int $0x13
        popw %dx
        jc next
        cmpw $0xaa55, %bx
        jne next
        movw $(HERE + receipts - start), %si
        movw $8, %cx
        call read
        jc next

        movw $RECEIPTS, %di
        movw $(4096 - UID_LENGTH + 1), %cx
compare:
        pushw %cx
        pushw %di
        movw $(HERE + uid - start), %si
        movw $UID_LENGTH, %cx
        repe cmpsb
        jne differs
        movw $AFTER, %bx
compare_index:
        pushw %di
        movw $(HERE + index - start), %si
        xorw %cx, %cx
        lodsb
        movb %al, %cl
        cmpw %cx, %cx                   # no bytes are equal bytes
        repe cmpsb
        popw %di
        je found
        incw %di
        decw %bx
        jnz compare_index
differs:
        popw %di
        popw %cx
        incw %di
        loop compare
        jmp next

found:
        popw %di
        popw %cx
        movw $(HERE + sector_0 - start), %si
        movw $1, %cx
        call read
        jc next
        cmpw $0xaa55, SECTOR_0 + 510
        jne next
        cli
        xorw %ax, %ax
        movw %ax, %ss
        movw $SECTOR_0, %sp
        sti
        ljmp $0, $SECTOR_0              # with the drive in dl, as the BIOS does it

next:
        incb %dl
        cmpb $LAST_DRIVE, %dl
        jbe try
        popw %es
        popw %ds
        movw $1, %ax
        lret

# Reads cx sectors as the packet at ds:si says from drive dl; carry if that fails. The BIOS leaves in the packet how many it
# read, and some change registers and segments.
read:
        movw %cx, 2(%si)
        pushw %dx
        movb $0x42, %ah
        int $0x13
        popw %dx
        movw $0, %ax                    # does not touch the carry
        movw %ax, %ds
        movw %ax, %es
        cld
        ret

receipts:                               # size, blocks, offset, segment, first block
        .byte 16, 0
        .word 0, RECEIPTS, 0
        .quad 2040
sector_0:
        .byte 16, 0
        .word 0, SECTOR_0, 0
        .quad 0

uid:
        .ascii "00000000-0000-0000-0000-000000000000"
index:
        .fill 32, 1, 0
