// SPDX-License-Identifier: GPL-2.0
/*
 * Sets the firmware's tryboot flag when it is loaded: the next start, and only that one, is of the partition that
 * [tryboot] in autoboot.txt names. It fails where the firmware does not answer.
 */
#include <linux/module.h>
#include <linux/of.h>
#include <soc/bcm2835/raspberrypi-firmware.h>

/* SET_REBOOT_FLAGS of the firmware's property interface; bit 0 is tryboot. */
#define SET_REBOOT_FLAGS 0x00038064
#define TRYBOOT 1

static int __init tryboot_init(void)
{
	struct device_node *node = of_find_compatible_node(NULL, NULL, "raspberrypi,bcm2835-firmware");
	struct rpi_firmware *firmware = node ? rpi_firmware_get(node) : NULL;
	u32 flags = TRYBOOT;
	int result;

	of_node_put(node);
	if (!firmware)
		return -ENODEV;
	result = rpi_firmware_property(firmware, SET_REBOOT_FLAGS, &flags, sizeof(flags));
	rpi_firmware_put(firmware);
	return result;
}

/* Without it the module cannot be unloaded. */
module_init(tryboot_init);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Sets the tryboot flag of a Raspberry Pi's firmware");
